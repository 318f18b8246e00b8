"""Dynamic sampling: collect again until enough groups have something to compare (DAPO, arXiv
2503.14476, sec. 3.2).

A group whose episodes all earned the same has advantage 0; it is dropped and further tasks are
played instead, for a budget of rounds. The last round is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sero_core.seeds import derived_random
from sero_core.types import Group, Task


@dataclass(frozen=True, slots=True)
class Collected:
    """`groups` are trained on; `discarded` were played and dropped. `num_rounds` >= 1."""

    groups: list[Group]
    discarded: list[Group]
    num_rounds: int

    @property
    def played(self) -> list[Group]:
        """All groups: what rates of success and totals of steps and tokens are about."""
        return [*self.groups, *self.discarded]


def collect_rounds(
    play: Callable[[Sequence[Task], int], list[Group]],
    first: Sequence[Task],
    tasks: Sequence[Task],
    *,
    max_rounds: int,
    seed: int,
) -> Collected:
    """Play `first`, then as many other tasks again per round, until len(first) groups are kept.

    `play(tasks, round)` returns their groups. With `max_rounds` 1 nothing is dropped. Groups of all
    rounds are kept, so there may be more than len(first) (eq. 11 has no upper bound either); the
    last round of the budget is not filtered. Tasks of later rounds are drawn from `seed` and the
    round alone, those not yet tried first, so an iteration that starts anew plays the same ones.
    """
    kept: list[Group] = []
    discarded: list[Group] = []
    tried: list[Task] = []
    number = 0
    while number < max_rounds and (number == 0 or len(kept) < len(first)):
        number += 1
        chosen = list(first) if number == 1 else _others(tasks, tried, len(first), seed, number)
        tried += chosen
        groups = play(chosen, number)
        is_last = number == max_rounds
        kept += [group for group in groups if is_last or has_spread(group)]
        discarded += [group for group in groups if not (is_last or has_spread(group))]
    return Collected(kept, discarded, number)


def has_spread(group: Group) -> bool:
    """Whether two of its episodes earned differently, format penalties and non-finite rewards
    aside."""
    earned = np.array(
        [sum(s.reward + s.format_penalty for s in episode.steps) for episode in group.episodes]
    )
    finite = earned[np.isfinite(earned)]
    return len(finite) > 1 and not np.allclose(finite, finite[0], rtol=1e-9, atol=1e-9)


def dynamic_metrics(collected: Collected) -> dict[str, float]:
    """What dynamic sampling cost: rounds, groups kept and dropped, tokens of the dropped ones."""
    steps = [s for group in collected.discarded for e in group.episodes for s in e.steps]
    return {
        "dynamic/rounds": float(collected.num_rounds),
        "dynamic/kept_groups": float(len(collected.groups)),
        "dynamic/discarded_groups": float(len(collected.discarded)),
        "dynamic/discarded_tokens": float(sum(len(s.completion.token_ids) for s in steps)),
    }


def _others(
    tasks: Sequence[Task], tried: Sequence[Task], count: int, seed: int, number: int
) -> list[Task]:
    """`count` tasks in an order drawn from (seed, round): those never tried before the others."""
    order = list(tasks)
    derived_random(seed, "round", number).shuffle(order)
    known = {task.task_id for task in tried}
    return sorted(order, key=lambda task: task.task_id in known)[:count]
