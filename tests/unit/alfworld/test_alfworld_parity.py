"""A fixed sample of native against stock engine: odd hand-made games, generated and real ones.

`make parity-alfworld` plays every game of the data folder.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.envs.alfworld import list_tasks
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.parity import Comparison, compare_game, main
from sero_core.envs.alfworld.reference import ReferenceSession
from sero_core.types import Task
from tests.support.alfworld import handmade_game, write_task

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("alfworld") is None, reason="alfworld is not installed"
    ),
]

ODD: dict[str, dict[str, object]] = {
    "plain": {},
    "already hot, cool, clean and on": {
        "extra": [
            "(isHot Mug_bar_1)",
            "(isCool Pen_bar_1)",
            "(isCool Apple_bar_2)",
            "(isClean Apple_bar_1)",
            "(isOn DeskLamp_bar_1)",
        ]
    },
    "already toggled, open and sliced": {
        "extra": ["(isToggled DeskLamp_bar_1)", "(opened Drawer_bar_1)", "(isSliced Apple_bar_1)"]
    },
    "objects inside objects": {
        "extra": [
            "(inReceptacleObject Pen_bar_1 Box_bar_1)",
            "(inReceptacleObject Apple_bar_1 Box_bar_1)",
            "(isReceptacleObject Mug_bar_1)",
        ]
    },
    "starts at a receptacle": {
        "extra": ["(atLocation agent1 loc_bar_1)"],
        "without": ["(atLocation agent1 loc_bar_9)"],
    },
    "no fridge": {"without": ["(receptacleType Fridge_bar_1 FridgeType)"]},
    "a receptacle nowhere": {"without": ["(receptacleAtLocation Drawer_bar_2 loc_bar_5)"]},
    "objects at odd locations": {
        "extra": ["(objectAtLocation Apple_bar_1 loc_bar_4)"],
        "without": ["(objectAtLocation Knife_bar_1 loc_bar_1)"],
    },
    "starts with a knife": {
        "extra": ["(holds agent1 Knife_bar_1)", "(holdsAny agent1)"],
        "without": ["(inReceptacle Knife_bar_1 CounterTop_bar_1)"],
    },
    "won at the start": {
        "goal": "(and (exists (?o - object ?r - receptacle) (and (objectType ?o MugType) "
        "(inReceptacle ?o ?r) (receptacleType ?r CoffeeMachineType))))"
    },
    "cleans at a desk": {"extra": ["(receptacleType Desk_bar_1 SinkType)"]},
}


@pytest.fixture(scope="module")
def session() -> Iterator[ReferenceSession]:
    return ReferenceSession()


def check(comparison: Comparison) -> None:
    assert comparison.differences == ()
    assert comparison.num_states > 10


@pytest.mark.parametrize("name", ODD)
def test_odd_games(name: str, session: ReferenceSession, tmp_path: Path) -> None:
    task = write_task(tmp_path, handmade_game(**ODD[name]))
    check(compare_game(replace(task, task_id=name), session, num_random_steps=40))


def test_logic_of_the_alfworld_package(session: ReferenceSession, tmp_path: Path) -> None:
    """The wheel's own domain and grammar, which differ from the released games' in one rule."""
    spec = importlib.util.find_spec("alfworld")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    game = handmade_game(
        domain=(data / "alfred.pddl").read_text(),
        grammar=(data / "alfred.twl2").read_text(),
        extra=["(receptacleType Desk_bar_1 SinkType)"],
    )
    check(compare_game(write_task(tmp_path, game), session, num_random_steps=60))


EVERYTHING = (
    "help",
    "go to countertop 1",
    "take knife 1 from countertop 1",
    "examine knife 1",
    "slice apple 2 with knife 1",
    "slice mug 1 with knife 1",
    "move knife 1 to countertop 1",
    "take apple 2 from countertop 1",
    "examine apple 2",
    "go to sinkbasin 1",
    "clean apple 2 with sinkbasin 1",
    "examine apple 2",
    "go to microwave 1",
    "heat apple 2 with microwave 1",
    "examine apple 2",
    "go to fridge 1",
    "cool apple 2 with fridge 1",
    "examine apple 2",
    "open fridge 1",
    "move apple 2 to fridge 1",
    "take apple 1 from fridge 1",
    "cool apple 1 with fridge 1",
    "examine apple 1",
    "inventory",
    "move apple 1 to fridge 1",
    "close fridge 1",
    "examine fridge 1",
    "go to desk 1",
    "use desklamp 1",
    "use desklamp 1",
    "take box 1 from desk 1",
    "examine box 1",
    "move box 1 to desk 1",
    "look",
    "go to countertop 1",
    "take mug 1 from countertop 1",
    "move mug 1 to coffeemachine 1",
    "look",
    "take papertowelroll 1 from countertop 1",
    "inventory",
)


def test_every_verb_once(session: ReferenceSession, tmp_path: Path) -> None:
    game = {**handmade_game(), "walkthrough": list(EVERYTHING)}
    check(compare_game(write_task(tmp_path, game), session, num_random_steps=5))


def test_generated_games(session: ReferenceSession, tmp_path: Path) -> None:
    generate(tmp_path, seed=7, difficulty="small", counts={"train": 6})
    for task in list_tasks(tmp_path, "train"):
        check(compare_game(task, session, num_random_steps=10))


@pytest.mark.skipif("SERO_DATA" not in os.environ, reason="SERO_DATA does not point to real games")
def test_real_games(session: ReferenceSession) -> None:
    tasks = list_tasks(Path(os.environ["SERO_DATA"]), "valid_seen")
    for task in tasks[::35]:
        check(compare_game(task, session, num_random_steps=10))


def test_a_difference_is_found_and_named(
    session: ReferenceSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task: Task = write_task(tmp_path, handmade_game())
    monkeypatch.setattr("sero_core.envs.alfworld.native.NOTHING", "Nothing.")
    comparison = compare_game(task, session, num_random_steps=60)
    assert any("'Nothing.' / 'Nothing happens.'" in line for line in comparison.differences)
    assert all(line.startswith(task.task_id) for line in comparison.differences)


def test_the_command_counts_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = list(sys.argv)
    write_task(tmp_path, handmade_game())
    options = [str(tmp_path), "--workers", "1", "--steps", "3", "--plain"]
    options += ["--resume", str(tmp_path / "done.jsonl")]
    assert main(options) == 0
    first = capsys.readouterr().out
    assert "1 games, " in first
    assert "0 games differ" in first
    monkeypatch.setattr("sero_core.envs.alfworld.parity.compare_game", None)
    assert main(options) == 0
    assert capsys.readouterr().out == first
    assert sys.argv == argv  # the stock engine overwrites it
