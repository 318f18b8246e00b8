"""Collect groups: G episodes of each task, all stepped in lockstep, one generation batch per turn.

Evaluation uses the same loop, so this module knows no oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sero_core.envs.admissible import is_admissible
from sero_core.envs.vector import Lost, Reached, VectorEnv
from sero_core.prompts import ParsedAction, PastStep, PromptBuilder, task_text
from sero_core.sections import RolloutConfig
from sero_core.seeds import derive_seed
from sero_core.types import Completion, Episode, Group, SeroError, Step, Task

logger = logging.getLogger(__name__)


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
    slot: int
    reached: Reached
    goal: str
    preface: str
    past: list[PastStep] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    is_over: bool = False
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Collector:
    """Everything that stays the same from one collection to the next."""

    engine: Engine
    envs: VectorEnv
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
        prefaces: Sequence[str] = (),
    ) -> list[Group]:
        """`group_size` episodes of each task, in task order.

        `prefaces`, one per task, go before every prompt of its episodes (prompting baselines).
        Episode seeds depend on (seed, task, index) only. `prefix` starts the episode ids
        (`<prefix>g<group>e<index>`). A step's reward is `success_reward` when it wins, minus
        `invalid_penalty` when its answer has a wrong format. An episode whose worker died is left
        out of its group, named in the log and counted in `Group.num_lost`.
        Errors: `SeroError` if the members of a group did not start in the same state.
        """
        live = self._start(tasks, group_size, seed, prefix, prefaces or [""] * len(tasks))
        while active := [episode for episode in live if not episode.is_over]:
            self.check_stop()
            self._turn(active, sampling)
        return [
            _group(task, live, range(i * group_size, (i + 1) * group_size))
            for i, task in enumerate(tasks)
        ]

    def _start(
        self,
        tasks: Sequence[Task],
        group_size: int,
        seed: int,
        prefix: str,
        prefaces: Sequence[str],
    ) -> list[_Live]:
        slots = [divmod(slot, group_size) for slot in range(len(tasks) * group_size)]
        live: list[_Live] = []
        for slot, reached in enumerate(self.envs.reset([tasks[group] for group, _ in slots])):
            group, index = slots[slot]
            task, episode_id = tasks[group], f"{prefix}g{group}e{index}"
            if isinstance(reached, Lost):
                _name_loss(episode_id, task, 0, reached)
                continue
            live.append(
                _Live(
                    episode_id=episode_id,
                    task=task,
                    index=index,
                    seed=derive_seed(seed, task.task_id, index),
                    slot=slot,
                    reached=reached,
                    goal=task_text(reached.observation.text),
                    preface=prefaces[group],
                )
            )
        return live

    def _turn(self, active: list[_Live], sampling: Sampling) -> None:
        prompts = [
            self.builder.build(
                episode.goal, episode.past, episode.reached.observation, episode.preface
            )
            for episode in active
        ]
        completions = self.engine.generate(
            [prompt.ids for prompt in prompts],
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_new_tokens,
            seeds=[derive_seed(episode.seed, len(episode.steps)) for episode in active],
        )
        answers = [self.builder.parse(completion.text) for completion in completions]
        outcomes = self.envs.step(
            [episode.slot for episode in active], [answer.action for answer in answers]
        )
        for episode, prompt, completion, answer, outcome in zip(
            active, prompts, completions, answers, outcomes, strict=True
        ):
            if isinstance(outcome, Lost):
                _name_loss(episode.episode_id, episode.task, len(episode.steps), outcome)
                episode.is_over = episode.is_lost = True
            else:
                self._record(episode, prompt.ids, completion, answer, outcome)

    def _record(
        self,
        episode: _Live,
        prompt_ids: tuple[int, ...],
        completion: Completion,
        answer: ParsedAction,
        after: Reached,
    ) -> None:
        before = episode.reached.observation
        reward = self.rollout.success_reward if after.observation.is_won else 0.0
        penalty = 0.0 if answer.is_valid else self.rollout.invalid_penalty
        episode.steps.append(
            Step(
                index=len(episode.steps),
                observation=before,
                prompt_ids=prompt_ids,
                completion=completion,
                action=answer.action,
                is_valid=answer.is_valid,
                is_admissible=is_admissible(episode.task.env, before, answer.action),
                reward=reward - penalty,
                snapshot=episode.reached.snapshot,
                format_penalty=penalty,
            )
        )
        episode.past.append(PastStep(before.text, answer.action))
        episode.reached = after
        episode.is_over = (
            after.observation.is_terminated or len(episode.steps) >= self.rollout.max_steps
        )


def _group(task: Task, live: Sequence[_Live], slots: range) -> Group:
    """The surviving members of a group, which must all have played the same game."""
    members = [_finish(item) for item in live if item.slot in slots and not item.is_lost]
    starts = {episode.steps[0].snapshot.state_hash for episode in members}
    games = {episode.task.content_hash for episode in members}
    if len(starts) > 1 or len(games) > 1:
        raise SeroError(
            f"group of task {task.task_id}: its episodes started in {len(starts)} different states "
            f"({', '.join(sorted(starts))}) of {len(games)} game(s), expected one of each"
        )
    return Group(task, tuple(members), num_lost=len(slots) - len(members))


def _name_loss(episode_id: str, task: Task, num_steps: int, lost: Lost) -> None:
    logger.warning(
        "episode %s of task %s is lost after %d step(s): %s",
        episode_id,
        task.task_id,
        num_steps,
        lost.reason,
    )


def _finish(episode: _Live) -> Episode:
    observation = episode.reached.observation
    return Episode(
        episode_id=episode.episode_id,
        task=episode.task,
        index=episode.index,
        steps=tuple(episode.steps),
        final_observation=observation,
        is_won=observation.is_won,
        is_truncated=not observation.is_terminated,
    )
