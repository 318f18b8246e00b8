"""The examples that ship: what the script writes, won episodes, of training tasks, both kinds."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from sero_core.baselines.demonstrations import ANY_TYPE, FOLDER, load_demonstrations, render
from sero_core.envs.alfworld.tasks import TASK_TYPES

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_demonstrations.py"


def test_the_files_are_what_the_script_writes(tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["main"](tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in FOLDER.iterdir()}


def test_every_task_type_has_two_examples_from_train() -> None:
    examples = load_demonstrations("alfworld").demonstrations
    assert Counter(item.task_type for item in examples) == dict.fromkeys(TASK_TYPES, 2)
    assert len({item.goal for item in examples}) == len(examples)
    assert all(item.task_id.startswith("train/") for item in examples)


def test_webshop_has_two_purchases_that_the_instruction_explains() -> None:
    examples = load_demonstrations("webshop").demonstrations
    assert [item.task_type for item in examples] == [ANY_TYPE] * 2
    assert len({item.goal for item in examples}) == 2
    for item in examples:
        assert item.task_id.startswith("webshop/train/")
        query = item.steps[0].action.removeprefix("search[").removesuffix("]")
        assert query in item.goal.lower(), "a query of words that the policy sees too"
        assert item.steps[-1].action == "click[buy now]"
        for step in item.steps[2:-1]:
            assert step.action.removeprefix("click[").removesuffix("]") in item.goal


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_thoughts_name_the_goal_first_and_fit_their_action(task_type: str) -> None:
    for item in load_demonstrations("alfworld").demonstrations:
        if item.task_type == task_type:
            target = item.goal.removeprefix("put a ").split()[0]
            assert item.steps[0].thought.startswith("I need to ")
            for step in item.steps:
                assert "to to " not in step.thought
                thing = step.action.split(" ", 1)[1].removeprefix("to ").split(" from ")[0]
                assert thing.split(" to ")[-1].split(" with ")[-1] in step.thought, (target, step)


def test_two_examples_fit_a_prompt_beside_the_training_prompt() -> None:
    """8192 tokens hold two examples and a prompt of 4096, at two characters a token or more."""
    assert len(render(load_demonstrations("webshop").demonstrations, "standard", "webshop")) < 8192
    for task_type in TASK_TYPES:
        mine = [
            d for d in load_demonstrations("alfworld").demonstrations if d.task_type == task_type
        ]
        assert len(render(mine, "standard", "alfworld")) < 6000
