"""Collect groups: G episodes of each task, all stepped in lockstep, one generation batch per turn.

Evaluation uses the same loop, so this module knows no oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sero_core.prompts import PastStep, PromptBuilder, task_text
from sero_core.sections import RolloutConfig
from sero_core.seeds import derive_seed
from sero_core.types import Completion, Environment, Episode, Group, Observation, Step, Task


class Engine(Protocol):
    """Samples and scores token ids under the policy's current weights."""

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seeds: Sequence[int],
    ) -> list[Completion]: ...

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]]
    ) -> list[tuple[float, ...]]: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the policy samples in this collection."""

    temperature: float
    max_new_tokens: int


@dataclass(slots=True)
class _Live:
    """An episode in progress (private to the loop; never leaves this module)."""

    episode_id: str
    task: Task
    index: int
    seed: int
    env: Environment
    observation: Observation
    goal: str
    past: list[PastStep] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    is_over: bool = False


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


@dataclass(frozen=True, slots=True)
class Collector:
    """Everything that stays the same from one collection to the next."""

    engine: Engine
    envs: EnvPool
    builder: PromptBuilder
    rollout: RolloutConfig
    check_stop: Callable[[], None] = lambda: None
    """Called between turns; raises to abandon the collection."""

    def collect(
        self,
        tasks: Sequence[Task],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        prefix: str,
    ) -> list[Group]:
        """`group_size` episodes of each task, in task order.

        Episode seeds depend on (seed, task, index) only. `prefix` starts the episode ids
        (`<prefix>g<group>e<index>`). A step's reward is `success_reward` when it wins, minus
        `invalid_penalty` when its answer has a wrong format.
        """
        live = self._start(tasks, group_size, seed, prefix)
        while active := [episode for episode in live if not episode.is_over]:
            self.check_stop()
            self._turn(active, sampling)
        episodes = [_finish(episode) for episode in live]
        return [
            Group(task, tuple(episodes[i * group_size : (i + 1) * group_size]))
            for i, task in enumerate(tasks)
        ]

    def _start(self, tasks: Sequence[Task], group_size: int, seed: int, prefix: str) -> list[_Live]:
        envs = self.envs.take(len(tasks) * group_size)
        live: list[_Live] = []
        for slot, env in enumerate(envs):
            group, index = divmod(slot, group_size)
            task = tasks[group]
            observation = env.reset(task)
            live.append(
                _Live(
                    episode_id=f"{prefix}g{group}e{index}",
                    task=task,
                    index=index,
                    seed=derive_seed(seed, task.task_id, index),
                    env=env,
                    observation=observation,
                    goal=task_text(observation.text),
                )
            )
        return live

    def _turn(self, active: list[_Live], sampling: Sampling) -> None:
        prompts = [
            self.builder.build(episode.goal, episode.past, episode.observation)
            for episode in active
        ]
        completions = self.engine.generate(
            [prompt.ids for prompt in prompts],
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_new_tokens,
            seeds=[derive_seed(episode.seed, len(episode.steps)) for episode in active],
        )
        for episode, prompt, completion in zip(active, prompts, completions, strict=True):
            self._act(episode, prompt.ids, completion)

    def _act(self, episode: _Live, prompt_ids: tuple[int, ...], completion: Completion) -> None:
        before = episode.observation
        parsed = self.builder.parse(completion.text)
        snapshot = episode.env.snapshot()
        after = episode.env.step(parsed.action)
        reward = self.rollout.success_reward if after.is_won else 0.0
        if not parsed.is_valid:
            reward -= self.rollout.invalid_penalty
        episode.steps.append(
            Step(
                index=len(episode.steps),
                observation=before,
                prompt_ids=prompt_ids,
                completion=completion,
                action=parsed.action,
                is_valid=parsed.is_valid,
                is_admissible=parsed.action in before.admissible,
                reward=reward,
                snapshot=snapshot,
            )
        )
        episode.past.append(PastStep(before.text, parsed.action))
        episode.observation = after
        episode.is_over = after.is_terminated or len(episode.steps) >= self.rollout.max_steps


def _finish(episode: _Live) -> Episode:
    return Episode(
        episode_id=episode.episode_id,
        task=episode.task,
        index=episode.index,
        steps=tuple(episode.steps),
        final_observation=episode.observation,
        is_won=episode.observation.is_won,
        is_truncated=not episode.observation.is_terminated,
    )
