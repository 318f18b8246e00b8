"""Evaluation on fixed panels: the same tasks, the same order, the same sampling seeds, every time.

No oracle exists here: this module has no import path to one, and a build check keeps it so.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sero_core.collect import Collector, Sampling
from sero_core.types import Episode, EvalResult, Evaluation, Task

logger = logging.getLogger(__name__)

CHUNK_TASKS = 128
MAX_ATTEMPTS = 3
Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Panel:
    """A named, ordered, fixed list of tasks. `hash` covers order and file contents."""

    name: str
    tasks: tuple[Task, ...]

    @property
    def hash(self) -> str:
        text = "\n".join(f"{task.task_id} {task.content_hash}" for task in self.tasks)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def evaluate(
    collector: Collector, panel: Panel, *, sampling: Sampling, seed: int, iteration: int
) -> Evaluation:
    """One episode per task. Sampling seeds depend on (seed, task) only, not on the iteration.

    An episode that an environment worker lost is played again, with the same seeds; a task that is
    lost every time is named in the log and missing from the table's counts.
    """
    outcomes: list[tuple[str, str, bool, int]] = []
    for start in range(0, len(panel.tasks), CHUNK_TASKS):
        chunk = panel.tasks[start : start + CHUNK_TASKS]
        episodes = _play(collector, chunk, sampling, seed, f"eval{iteration}-")
        for task in chunk:
            if episode := episodes.get(task.task_id):
                outcomes.append((task.task_id, task.task_type, episode.is_won, len(episode.steps)))
    return Evaluation(
        evaluation_id=f"{panel.name}-{iteration}",
        iteration=iteration,
        panel=panel.name,
        panel_hash=panel.hash,
        results=summarize(panel.name, outcomes),
        outcomes=tuple(outcomes),
    )


def _play(
    collector: Collector, tasks: Sequence[Task], sampling: Sampling, seed: int, prefix: str
) -> dict[str, Episode]:
    """The episode of each task, by task id."""
    episodes: dict[str, Episode] = {}
    pending = list(tasks)
    for _ in range(MAX_ATTEMPTS):
        groups = collector.collect(
            pending, group_size=1, sampling=sampling, seed=seed, prefix=prefix
        )
        episodes |= {group.task.task_id: group.episodes[0] for group in groups if group.episodes}
        pending = [group.task for group in groups if not group.episodes]
        if not pending:
            break
    for task in pending:
        logger.warning("task %s was lost %d times: not evaluated", task.task_id, MAX_ATTEMPTS)
    return episodes


def summarize(panel: str, outcomes: Sequence[tuple[str, str, bool, int]]) -> tuple[EvalResult, ...]:
    """Row `all` (micro mean) first, then one row per task type in alphabetical order."""
    types = sorted({task_type for _, task_type, _, _ in outcomes})
    rows = [_result(panel, "all", outcomes)]
    rows += [_result(panel, name, [o for o in outcomes if o[1] == name]) for name in types]
    return tuple(rows)


def wilson_interval(num_won: int, num_tasks: int) -> tuple[float, float]:
    """Wilson score interval at 95 % for a binomial rate; (0, 1) when there are no tasks.

    Source: E. B. Wilson, JASA 22 (1927).
    """
    if num_tasks == 0:
        return 0.0, 1.0
    rate, squared = num_won / num_tasks, Z_95**2
    center = rate + squared / (2 * num_tasks)
    spread = Z_95 * math.sqrt(rate * (1 - rate) / num_tasks + squared / (4 * num_tasks**2))
    scale = 1 + squared / num_tasks
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def _result(
    panel: str, task_type: str, outcomes: Sequence[tuple[str, str, bool, int]]
) -> EvalResult:
    num_won = sum(is_won for _, _, is_won, _ in outcomes)
    count = len(outcomes)
    low, high = wilson_interval(num_won, count)
    return EvalResult(
        panel=panel,
        task_type=task_type,
        num_tasks=count,
        num_won=num_won,
        rate=num_won / count if count else 0.0,
        low=low,
        high=high,
        mean_steps=sum(steps for _, _, _, steps in outcomes) / count if count else 0.0,
    )
