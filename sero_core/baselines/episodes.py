"""One episode for each place of a list of tasks, whatever happens to environment workers."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Protocol

from sero_core.collect import Collector, Sampling
from sero_core.seeds import derive_seed
from sero_core.types import Episode, Task

logger = logging.getLogger(__name__)

CHUNK_TASKS = 128
MAX_ATTEMPTS = 3


class Agent(Protocol):
    """What an evaluation asks to play."""

    def play(
        self, tasks: Sequence[Task], *, sampling: Sampling, seed: int, prefix: str
    ) -> list[Episode | None]:
        """The episode that counts, for each place of `tasks`; a task may be there several times.

        None where an environment worker lost it `MAX_ATTEMPTS` times, which the log says.
        """
        ...


def play_once(
    collector: Collector,
    tasks: Sequence[Task],
    prefaces: Sequence[str],
    *,
    sampling: Sampling,
    seed: int,
    prefix: str,
) -> list[Episode | None]:
    """One episode per place; `prefaces[i]` goes before the prompts of place i.

    Sampling seeds depend on (seed, task, how often the task came before) only. An episode that an
    environment worker lost is played again with the same seeds.
    """
    episodes: list[Episode | None] = [None] * len(tasks)
    for repeat, places in enumerate(_by_repeat(tasks)):
        used = seed if repeat == 0 else derive_seed(seed, "repeat", repeat)
        for start in range(0, len(places), CHUNK_TASKS):
            pending = places[start : start + CHUNK_TASKS]
            for _ in range(MAX_ATTEMPTS):
                groups = collector.collect(
                    [tasks[place] for place in pending],
                    group_size=1,
                    sampling=sampling,
                    seed=used,
                    prefix=prefix,
                    prefaces=[prefaces[place] for place in pending],
                )
                for place, group in zip(pending, groups, strict=True):
                    episodes[place] = group.episodes[0] if group.episodes else None
                pending = [place for place in pending if episodes[place] is None]
                if not pending:
                    break
            for place in pending:
                logger.warning(
                    "task %s was lost %d times: not evaluated", tasks[place].task_id, MAX_ATTEMPTS
                )
    return episodes


def _by_repeat(tasks: Sequence[Task]) -> list[list[int]]:
    """Places of first occurrences, of second ones, and so on."""
    seen: Counter[str] = Counter()
    waves: defaultdict[int, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        waves[seen[task.task_id]].append(place)
        seen[task.task_id] += 1
    return [waves[repeat] for repeat in sorted(waves)]
