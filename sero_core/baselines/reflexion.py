"""Reflexion, arXiv 2303.11366: ReAct in several trials; after a failed one the model writes a
lesson for the next.

Which trial counts is part of the result's name. `last` plays every trial to the end and counts the
last one, so the success signal decides only whether a lesson is written. `any`, as in the original,
stops at the first success: it uses the success signal at test time to choose among trials.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from sero_core.baselines.demonstrations import load_demonstrations
from sero_core.baselines.episodes import Agent, play_once
from sero_core.baselines.react import examples, with_limit
from sero_core.collect import Collector, Sampling
from sero_core.prompts import Prompt, PromptBuilder, PromptTooLong, task_text
from sero_core.sections import Part
from sero_core.seeds import derive_seed
from sero_core.types import Episode, Task

logger = logging.getLogger(__name__)

REFLECTION = (
    "You tried to do this task: {goal}\nThis is what you saw and did:\n{steps}\n"
    "The task was not done when {end}. Write one lesson for your next attempt, in one or two "
    "sentences: what went wrong, and what you will do instead."
)
LESSONS = "Lessons from your earlier attempts at this task:"
_TAGS = re.compile(r"<think>.*?</think>|</?\w+>", re.DOTALL)
_SPACE = re.compile(r"\s+")


class Reflexion(Part):
    """ReAct in several trials, each with the lessons of the failed ones before it."""

    name: Literal["reflexion"] = "reflexion"
    num_demonstrations: int = Field(default=1, ge=1, le=2, description="Worked episodes")
    max_prompt_tokens: int = Field(
        default=8192, ge=64, le=131_072, description="Longest prompt, examples and lessons included"
    )
    num_trials: int = Field(default=3, ge=1, le=20, description="Trials per task")
    max_lessons: int = Field(default=3, ge=1, le=20, description="Newest lessons kept")
    max_lesson_tokens: int = Field(default=128, ge=1, le=2048, description="Longest lesson")
    counting: Literal["last", "any"] = Field(
        default="last", description="The trial that counts; any: success in any (as the original)"
    )

    @property
    def label(self) -> str:
        return f"reflexion {self.num_demonstrations} {self.counting} of {self.num_trials}"

    def source(self, env: str) -> str:
        """What this puts into prompts, for their hash."""
        return load_demonstrations(env).model_dump_json() + REFLECTION + LESSONS

    def __call__(self, collector: Collector) -> Agent:
        return ReflexionAgent(with_limit(collector, self.max_prompt_tokens), self)


@dataclass(frozen=True, slots=True)
class ReflexionAgent:
    collector: Collector
    config: Reflexion

    def play(
        self, tasks: Sequence[Task], *, sampling: Sampling, seed: int, prefix: str
    ) -> list[Episode | None]:
        """The last trial of each place, or its first success if any success counts.

        Trial 0 has the seeds of ReAct, so its episodes are ReAct's.
        """
        counted: list[Episode | None] = [None] * len(tasks)
        lessons: list[tuple[str, ...]] = [()] * len(tasks)
        pending = list(range(len(tasks)))
        for trial in range(self.config.num_trials):
            episodes = play_once(
                self.collector,
                [tasks[place] for place in pending],
                [self._preface(tasks[place], lessons[place]) for place in pending],
                sampling=sampling,
                seed=seed if trial == 0 else derive_seed(seed, "trial", trial),
                prefix=f"{prefix}t{trial}-",
            )
            for place, episode in zip(pending, episodes, strict=True):
                counted[place] = episode
            if trial == self.config.num_trials - 1:
                break
            failed = {p: e for p in pending if (e := counted[p]) is not None and not e.is_won}
            for place, lesson in self._reflect(failed, sampling, seed, trial).items():
                lessons[place] = (*lessons[place], lesson)[-self.config.max_lessons :]
            if self.config.counting == "any":
                pending = list(failed)
        return counted

    def _preface(self, task: Task, lessons: Sequence[str]) -> str:
        before = examples(self.collector, task, self.config.num_demonstrations)
        if not lessons:
            return before
        lines = "".join(f"- {lesson}\n" for lesson in lessons)
        return f"{before}{LESSONS}\n{lines}\n"

    def _reflect(
        self, failed: Mapping[int, Episode], sampling: Sampling, seed: int, trial: int
    ) -> dict[int, str]:
        """One lesson per failed episode (by place), in one batch of generations."""
        if not failed:
            return {}
        builder, limit = self.collector.builder, self.config.max_prompt_tokens
        completions = self.collector.engine.generate(
            [reflection_prompt(builder, episode, limit).ids for episode in failed.values()],
            temperature=sampling.temperature,
            max_new_tokens=self.config.max_lesson_tokens,
            seeds=[derive_seed(seed, "lesson", trial, place) for place in failed],
        )
        lessons = {
            place: lesson_in(completion.text)
            for place, completion in zip(failed, completions, strict=True)
        }
        for place, lesson in lessons.items():
            logger.info("%s: lesson after trial %d: %s", failed[place].task.task_id, trial, lesson)
        return lessons


def reflection_prompt(builder: PromptBuilder, episode: Episode, max_prompt_tokens: int) -> Prompt:
    """Asks for a lesson from a failed episode; its oldest steps are dropped until it fits.

    Errors: `PromptTooLong` when not even the last step fits.
    """
    goal = task_text(episode.steps[0].observation.text)
    end = "the limit of steps was reached" if episode.is_truncated else "the attempt ended"
    lines = [
        f"[Observation {i}: '{builder.shown(goal, step.observation.text)}', "
        f"Action {i}: '{step.action}']"
        for i, step in enumerate(episode.steps, 1)
    ]
    final = builder.shown(goal, episode.final_observation.text)
    lines.append(f"[Observation {len(lines) + 1}: '{final}']")
    while True:
        steps = "\n".join(lines)
        prompt = builder.chat(REFLECTION.format(goal=goal, steps=steps, end=end))
        if len(prompt.ids) <= max_prompt_tokens:
            return prompt
        if len(lines) == 1:
            raise PromptTooLong(
                f"the reflection on task {episode.task.task_id} has {len(prompt.ids)} tokens with "
                f"its last observation alone, max_prompt_tokens is {max_prompt_tokens}"
            )
        del lines[0]


def lesson_in(answer: str) -> str:
    """The answer as one line, without tags and without what stands between think tags."""
    return _SPACE.sub(" ", _TAGS.sub(" ", answer)).strip() or "(nothing was written)"
