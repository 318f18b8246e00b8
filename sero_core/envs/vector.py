"""Many episodes stepped together. One process steps them all without threads; `workers.py` spreads
them over processes. A slot is one episode of a collection, numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sero_core.types import Environment, Observation, Snapshot, Task


@dataclass(frozen=True, slots=True)
class Reached:
    """What a slot shows after a reset or a step, and the identity of that state.

    The snapshot's handle is present only where the environment lives in this process.
    """

    observation: Observation
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Lost:
    """The slot's episode cannot go on: its worker died or hung. `reason` is shown to the user."""

    reason: str


class VectorEnv(Protocol):
    """The environments of one collection after another.

    Every list that is returned has one entry per slot asked for, in that order. Once a slot is
    `Lost` it stays so until the next reset.
    """

    def reset(self, tasks: Sequence[Task]) -> list[Reached | Lost]:
        """Start one episode per task: slot i plays `tasks[i]`. Earlier slots are forgotten."""
        ...

    def step(self, slots: Sequence[int], actions: Sequence[str]) -> list[Reached | Lost]:
        """Execute `actions[i]` in slot `slots[i]`."""
        ...

    def close(self) -> None: ...


class EnvPool:
    """Environments that are reused for ever (a stock engine never frees its memory)."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._envs: list[Environment] = []

    def take(self, count: int) -> list[Environment]:
        """The first `count` environments, created on first need."""
        while len(self._envs) < count:
            self._envs.append(self._make())
        return self._envs[:count]

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs.clear()


class LocalEnvs:
    """A `VectorEnv` in this process, over a pool that others may use between collections.

    An error of an environment is raised as it is; nothing is ever `Lost`.
    """

    def __init__(self, pool: EnvPool) -> None:
        self._pool = pool
        self._envs: list[Environment] = []

    def reset(self, tasks: Sequence[Task]) -> list[Reached | Lost]:
        self._envs = self._pool.take(len(tasks))
        return [_reached(env, env.reset(task)) for env, task in zip(self._envs, tasks, strict=True)]

    def step(self, slots: Sequence[int], actions: Sequence[str]) -> list[Reached | Lost]:
        return [
            _reached(self._envs[slot], self._envs[slot].step(action))
            for slot, action in zip(slots, actions, strict=True)
        ]

    def close(self) -> None:
        self._envs = []
        self._pool.close()


def _reached(env: Environment, observation: Observation) -> Reached:
    return Reached(observation, env.snapshot())
