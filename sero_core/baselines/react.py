"""ReAct, arXiv 2210.03629: the training prompt after worked episodes with thoughts.

The original's prompts are not used: examples are episodes of our own oracle on training tasks, of
the same task type as the task that is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from sero_core.baselines.demonstrations import (
    demonstrations_for,
    load_demonstrations,
    render,
)
from sero_core.baselines.episodes import Agent, play_once
from sero_core.collect import Collector, Sampling
from sero_core.sections import Part
from sero_core.types import Episode, Task


class ReAct(Part):
    """Worked thought/action episodes of the task's type before each prompt."""

    name: Literal["react"] = "react"
    num_demonstrations: int = Field(default=1, ge=1, le=2, description="Worked episodes")
    max_prompt_tokens: int = Field(
        default=8192, ge=64, le=131_072, description="Longest prompt, examples included"
    )

    @property
    def label(self) -> str:
        return f"react {self.num_demonstrations}"

    def source(self, env: str) -> str:
        """What this puts into prompts, for their hash."""
        return load_demonstrations(env).model_dump_json()

    def __call__(self, collector: Collector) -> Agent:
        return ReActAgent(with_limit(collector, self.max_prompt_tokens), self.num_demonstrations)


@dataclass(frozen=True, slots=True)
class ReActAgent:
    collector: Collector
    num_demonstrations: int

    def play(
        self, tasks: Sequence[Task], *, sampling: Sampling, seed: int, prefix: str
    ) -> list[Episode | None]:
        prefaces = [examples(self.collector, task, self.num_demonstrations) for task in tasks]
        return play_once(
            self.collector, tasks, prefaces, sampling=sampling, seed=seed, prefix=prefix
        )


def examples(collector: Collector, task: Task, count: int) -> str:
    """The rendered demonstrations for a task."""
    return render(demonstrations_for(task, count), collector.builder.style, collector.builder.env)


def with_limit(collector: Collector, max_prompt_tokens: int) -> Collector:
    """The same collector whose prompts may be longer."""
    return replace(collector, builder=collector.builder.limited_to(max_prompt_tokens))
