"""The policy under its training prompt: what evaluation during training does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sero_core.baselines.episodes import Agent, play_once
from sero_core.collect import Collector, Sampling
from sero_core.sections import Part
from sero_core.types import Episode, Task


class ZeroShot(Part):
    """The training prompt alone."""

    name: Literal["zero_shot"] = "zero_shot"

    @property
    def label(self) -> str:
        return self.name

    def source(self, env: str) -> str:
        """What this puts into prompts, for their hash."""
        return ""

    def __call__(self, collector: Collector) -> Agent:
        return ZeroShotAgent(collector)


@dataclass(frozen=True, slots=True)
class ZeroShotAgent:
    collector: Collector

    def play(
        self, tasks: Sequence[Task], *, sampling: Sampling, seed: int, prefix: str
    ) -> list[Episode | None]:
        prefaces = [""] * len(tasks)
        return play_once(
            self.collector, tasks, prefaces, sampling=sampling, seed=seed, prefix=prefix
        )
