"""Evaluation protocols: which tasks of a panel are played, in which order and how often.

`fixed` plays every task once. `paper` reproduces the draws behind the published numbers, which
come from verl-agent's validation (docs/evaluation.md): 128 episodes on tasks drawn by seed, a new
draw at every evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sero_core.sections import Part
from sero_core.types import SeroError, Task


class FixedProtocol(Part):
    """Every task of each panel once, in the panel's order, at every evaluation."""

    name: Literal["fixed"] = "fixed"

    @property
    def label(self) -> str:
        return self.name

    def panels(self, splits: Sequence[str]) -> tuple[str, ...]:
        """Of an environment's evaluation splits: all."""
        return tuple(splits)

    def __call__(self, tasks: Sequence[Task], seed: int, number: int) -> tuple[Task, ...]:
        """The tasks of evaluation `number`; neither the seed nor the number plays a part."""
        return tuple(tasks)


class PaperProtocol(Part):
    """verl-agent's validation: tasks drawn by seed, so some repeat and some are never played.

    ALFWorld: draw i belongs to a worker seeded `seed + i`, which shuffles the whole list for itself
    and plays one task per evaluation; tasks repeat within an evaluation. WebShop: one generator
    chooses all draws of an evaluation, without repetition within it. Both use numpy's legacy
    generator, whose stream is frozen. Report the mean of the last three evaluations, never the
    best: the best of 30 noisy evaluations is several points too high.
    """

    name: Literal["paper"] = "paper"
    num_draws: int = Field(default=128, ge=1, le=100_000, description="Episodes per evaluation")

    @property
    def label(self) -> str:
        return f"paper {self.num_draws}"

    def panels(self, splits: Sequence[str]) -> tuple[str, ...]:
        """Of an environment's evaluation splits: the first (valid_seen in ALFWorld)."""
        return tuple(splits[:1])

    def __call__(self, tasks: Sequence[Task], seed: int, number: int) -> tuple[Task, ...]:
        """The tasks of evaluation `number` (from 0) under this seed.

        Errors: `SeroError` when draws without repetition need more tasks than there are.
        """
        if tasks[0].env == "alfworld":
            chosen = _draw_per_worker(len(tasks), seed, self.num_draws, number)
        else:
            if self.num_draws > len(tasks):
                raise SeroError(
                    f"evaluation.protocol.num_draws is {self.num_draws}, but {tasks[0].split} has "
                    f"only {len(tasks)} tasks and protocol `paper` repeats none there"
                )
            chosen = _draw_together(len(tasks), seed, self.num_draws, number)
        return tuple(tasks[index] for index in chosen)


ProtocolConfig = Annotated[FixedProtocol | PaperProtocol, Field(discriminator="name")]
"""The union of all protocols, told apart by `name`."""


def _draw_per_worker(num_tasks: int, seed: int, num_draws: int, number: int) -> list[int]:
    """Element `number` of each worker's own endless shuffled stream."""
    return [
        next(islice(_shuffled_stream(num_tasks, seed + worker), number, None))
        for worker in range(num_draws)
    ]


def _shuffled_stream(num_tasks: int, seed: int) -> Iterator[int]:
    """A shuffled list, then the same list shuffled further, and so on (as TextWorld's gym does)."""
    rng = np.random.RandomState(seed % 2**32)
    order = list(range(num_tasks))
    while True:
        rng.shuffle(order)
        yield from order


def _draw_together(num_tasks: int, seed: int, num_draws: int, number: int) -> list[int]:
    """Choice `number` of one generator, each without replacement."""
    rng = np.random.RandomState(seed % 2**32)
    for _ in range(number):
        rng.choice(num_tasks, size=num_draws, replace=False)
    return [int(index) for index in rng.choice(num_tasks, size=num_draws, replace=False)]
