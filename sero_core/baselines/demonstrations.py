"""Worked examples for prompts, as data: `data/<environment>.json`.

`scripts/make_demonstrations.py` made them from training tasks of our own generators, with oracles
of ours and thoughts from templates. This module only reads and renders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sero_core.prompts import ACTION_CLOSE, ACTION_OPEN, EnvName, shown, terse_observation
from sero_core.types import SeroError, Task

ANY_TYPE = "any"
FOLDER = Path(__file__).parent / "data"


class DemonstrationStep(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    observation: str
    thought: str
    action: str


class Demonstration(BaseModel):
    """A won episode of a training task. `final_observation` follows the last action."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    task_type: str
    goal: str
    steps: tuple[DemonstrationStep, ...]
    final_observation: str


class DemonstrationFile(BaseModel):
    """All examples of an environment, several for each task type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str
    made_by: str
    demonstrations: tuple[Demonstration, ...]


@cache
def load_demonstrations(env: str) -> DemonstrationFile:
    """Errors: `SeroError` for an environment without a file."""
    path = FOLDER / f"{env}.json"
    if not path.is_file():
        raise SeroError(f"there are no demonstrations for environment {env!r}: expected {path}")
    return DemonstrationFile.model_validate_json(path.read_text())


def demonstrations_for(task: Task, count: int) -> tuple[Demonstration, ...]:
    """The first `count` examples of the task's type, or of any (`ANY_TYPE`, in WebShop).

    Errors: `SeroError` when there are fewer.
    """
    every = load_demonstrations(task.env).demonstrations
    chosen = [item for item in every if item.task_type in (task.task_type, ANY_TYPE)]
    if len(chosen) < count:
        raise SeroError(
            f"baseline needs {count} demonstrations of type {task.task_type}, "
            f"environment {task.env} has {len(chosen)}"
        )
    return tuple(chosen[:count])


def render(
    demonstrations: Sequence[Demonstration], style: Literal["terse", "standard"], env: EnvName
) -> str:
    """The examples in the words of the prompt format, ending with a blank line.

    `standard` numbers observations and answers as the prompt numbers its history, each answer with
    its thought. Answers in the `terse` format have no thought, so its examples have none.
    """
    if style == "terse":
        return "".join(f"{_terse(item, env)}\n\n" for item in demonstrations)
    parts = [_standard(number, item, env) for number, item in enumerate(demonstrations, 1)]
    return "\n\n".join([*parts, "Now it is your turn.", ""])


def _standard(number: int, item: Demonstration, env: EnvName) -> str:
    lines = [f"Example {number}, solved by an expert. The task is to: {item.goal}"]
    lines += [
        f"[Observation {i}: '{shown(env, item.goal, step.observation)}', "
        f"Response {i}: '<think>{step.thought}</think>{ACTION_OPEN}{step.action}{ACTION_CLOSE}']"
        for i, step in enumerate(item.steps, 1)
    ]
    return "\n".join([*lines, "The task is done."])


def _terse(item: Demonstration, env: EnvName) -> str:
    """As the terse prompt shows a task and its history."""
    if env == "webshop":
        return "\n".join([f"task: {item.goal.lower()}", *(f"> {s.action}" for s in item.steps)])
    after = [*(step.observation for step in item.steps[1:]), item.final_observation]
    lines = [f"task: {item.goal.rstrip('.')}"]
    lines += [
        f"{step.action} > {terse_observation(text)}"
        for step, text in zip(item.steps, after, strict=True)
    ]
    return "\n".join(lines)
