"""Small hand-made episodes for tests of pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from sero_core.types import Completion, Episode, Group, Observation, Snapshot, Step, Task

TASK = Task("train/game/trial", "alfworld", "train", "pick_and_place_simple", "", "0" * 64)
OBSERVATION = Observation("You see nothing.", ("look",))


def step_of(index: int, reward: float = 0.0, action: str = "look") -> Step:
    return Step(
        index=index,
        observation=OBSERVATION,
        prompt_ids=(1, 2, 3),
        completion=Completion((4, 5), (-0.1, -0.2), f"<action>{action}</action>", False),
        action=action,
        is_valid=True,
        is_admissible=True,
        reward=reward,
        snapshot=Snapshot(TASK.task_id, (), f"hash{index}"),
    )


def episode_of(reward: float, length: int, index: int = 0) -> Episode:
    """An episode whose whole reward is on its last step."""
    steps = [step_of(i, reward if i == length - 1 else 0.0) for i in range(length)]
    return Episode(
        episode_id=f"i1g0e{index}",
        task=TASK,
        index=index,
        steps=tuple(steps),
        final_observation=OBSERVATION,
        is_won=reward > 0,
        is_truncated=False,
    )


def group_of(rewards: Sequence[float], lengths: Sequence[int]) -> Group:
    episodes = [
        episode_of(reward, length, index)
        for index, (reward, length) in enumerate(zip(rewards, lengths, strict=True))
    ]
    return Group(TASK, tuple(episodes))
