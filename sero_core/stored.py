"""Stored rows as the trainer's own types again: an episode to branch from, a branch to score again.

Imports no torch: the worker writes such rows for its child.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from sero_core.records import BranchPayload, EpisodePayload
from sero_core.types import Completion, Episode, Observation, SeroError, Snapshot, Step, Task

ROWS_FILE = "rows.json"


class StoredRows(BaseModel):
    """What a job on stored rows works on; `episodes` are also those of the branches."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    episodes: list[EpisodePayload]
    branches: list[BranchPayload] = []

    def episode(self, episode_id: str) -> EpisodePayload:
        """Errors: `SeroError`."""
        for episode in self.episodes:
            if episode.episode_id == episode_id:
                return episode
        raise SeroError(f"the rows hold no episode {episode_id}")


def find_task(tasks: Iterable[Task], episode: EpisodePayload) -> Task:
    """The task of a stored episode on this machine.

    Errors: `SeroError` when it is not there, or its file is another one than then.
    """
    wanted = episode.task
    for task in tasks:
        if task.task_id == wanted.task_id:
            if task.content_hash != wanted.content_hash:
                raise SeroError(
                    f"task {wanted.task_id} has other contents now: got {task.content_hash[:16]}, "
                    f"expected {wanted.content_hash[:16]}"
                )
            return task
    raise SeroError(f"task {wanted.task_id} of episode {episode.episode_id} is not on this machine")


def to_episode(payload: EpisodePayload, task: Task) -> Episode:
    """Snapshots hold the actions before each step, so that a restore replays them and compares the
    state's hash. Prompts are not stored: nobody trains on these steps."""
    return Episode(
        episode_id=payload.episode_id,
        task=task,
        index=payload.index,
        steps=tuple(_step(payload, index, task) for index in range(len(payload.steps))),
        final_observation=Observation(payload.final_observation, (), payload.is_won, True),
        is_won=payload.is_won,
        is_truncated=payload.is_truncated,
    )


def _step(payload: EpisodePayload, index: int, task: Task) -> Step:
    step = payload.steps[index]
    before = _actions(payload, index)
    return Step(
        index=step.index,
        observation=Observation(step.observation, tuple(step.admissible)),
        prompt_ids=(),
        completion=Completion(
            tuple(step.token_ids), tuple(step.logprobs), step.response, is_truncated=False
        ),
        action=step.action,
        is_valid=step.is_valid,
        is_admissible=step.is_admissible,
        reward=step.reward,
        snapshot=Snapshot(task.task_id, before, step.state_hash),
    )


def _actions(payload: EpisodePayload, index: int) -> tuple[str, ...]:
    return tuple(step.action for step in payload.steps[:index])


def history(
    episode: EpisodePayload, branch: BranchPayload, depth: int
) -> Sequence[tuple[str, str]]:
    """(observation, action) of everything before a branch step: the policy's, then the oracle's."""
    return [
        *((step.observation, step.action) for step in episode.steps[: branch.root_index]),
        *((step.observation, step.action) for step in branch.steps[:depth]),
    ]
