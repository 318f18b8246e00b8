"""The stock engine (textworld's PddlEnv with ALFWorld's demangler) as a session.

Slow and stateful, but it plays any game. What it needs, and gets here:

- One engine object per session, reused for every game: each one maps its own copy of a 34 MB
  library that is never unmapped.
- A process-wide lock: its parsers are module globals and loading swaps `sys.stdout`.
- `sys.argv` restored after loading, which overwrites it.

alfworld and textworld are imported when the first session starts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, cast

from sero_core.envs.alfworld.compiler import read_game
from sero_core.envs.alfworld.game import Fact, facts_digest
from sero_core.types import Observation

_LOCK = threading.RLock()


class ReferenceSession:
    """One game at a time on the stock engine. A restore is a reset and a replay."""

    def __init__(self) -> None:
        with _LOCK:
            self._engine = _make_engine()
        self._facts: frozenset[Fact] = frozenset()
        self._digest: int | None = None
        self._loaded: bytes | None = None

    def load(self, raw: bytes) -> None:
        """Load the bytes of a `game.tw-pddl` file."""
        if raw == self._loaded:
            return
        with _LOCK, _process_state_kept():
            self._engine.load(read_game(raw))
        self._loaded = raw

    def reset(self) -> Observation:
        with _LOCK, _process_state_kept():
            state = self._engine.reset()
        return self._observe(state)

    def step(self, action: str) -> Observation:
        with _LOCK, _process_state_kept():
            state, _, _ = self._engine.step(action)
        return self._observe(state)

    def facts(self) -> frozenset[Fact]:
        return self._facts

    def facts_digest(self) -> int:
        if self._digest is None:
            self._digest = facts_digest(self._facts)
        return self._digest

    def _observe(self, state: _StockState) -> Observation:
        facts = cast("list[_StockFact]", state["facts"])
        self._facts = frozenset((fact.name, *fact.names) for fact in facts)
        self._digest = None
        is_won = bool(state["won"])
        commands = tuple(cast("list[str]", state["admissible_commands"]))
        return Observation(state.feedback, commands, is_won, is_terminated=is_won)


class _StockFact(Protocol):
    name: str
    names: tuple[str, ...]


class _StockState(Protocol):
    feedback: str

    def __getitem__(self, key: str) -> object: ...


class _StockEngine(Protocol):
    def load(self, game: dict[str, str]) -> None: ...

    def reset(self) -> _StockState: ...

    def step(self, command: str) -> tuple[_StockState, float, bool]: ...


def _make_engine() -> _StockEngine:
    with _process_state_kept():
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        infos = EnvInfos(facts=True, admissible_commands=True, won=True)
        return cast(_StockEngine, AlfredDemangler(PddlEnv(infos), shuffle=False))


@contextmanager
def _process_state_kept() -> Generator[None]:
    """Put `sys.argv` and `sys.stdout` back."""
    argv, stdout = sys.argv, sys.stdout
    try:
        yield
    finally:
        sys.argv, sys.stdout = argv, stdout
