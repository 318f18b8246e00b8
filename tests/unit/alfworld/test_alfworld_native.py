"""The native engine on the hand-made game: texts, commands, state and goal, worked out by hand."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sero_core.envs.alfworld import AlfworldEnv, native, task_text
from sero_core.envs.alfworld.compiler import compile_game
from sero_core.envs.alfworld.game import Game, facts_digest
from tests.support.alfworld import WALKTHROUGH, handmade_game, write_task


def compiled(**changes: object) -> Game:
    return compile_game(json.dumps(handmade_game(**changes)).encode())


GAME = compiled()


def play(game: Game, *commands: str) -> tuple[native.State, str]:
    state, shown = native.initial_state(game), native.intro(game)
    for command in commands:
        state, shown = native.step(game, state, command)
    return state, shown


def test_intro_lists_receptacles_in_id_order_and_the_task() -> None:
    intro = native.intro(GAME)
    assert intro == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a coffeemachine 1, "
        "a countertop 1, a desk 1, a drawer 2, a drawer 1, a fridge 1, a microwave 1, "
        "and a sinkbasin 1.\n\n"
        "Your task is to: put a hot apple in countertop."
    )
    assert task_text(intro) == "put a hot apple in countertop."


def test_look_in_the_middle_of_the_room_sees_nothing() -> None:
    assert play(GAME, "look")[1] == (
        "You are in the middle of a room. Looking quickly around you, you see nothing."
    )


def test_start_offers_every_receptacle_and_the_three_free_commands() -> None:
    assert native.admissible(GAME, native.initial_state(GAME)) == (
        "go to coffeemachine 1",
        "go to countertop 1",
        "go to desk 1",
        "go to drawer 1",
        "go to drawer 2",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
    )


def test_commands_at_a_place_with_two_receptacles() -> None:
    state, shown = play(GAME, "go to countertop 1")
    assert shown == (
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a knife 1, a mug 1, "
        "and a papertowelroll 1."
    )
    commands = native.admissible(GAME, state)
    assert [command for command in commands if not command.startswith("go to")] == [
        "examine coffeemachine 1",
        "examine countertop 1",
        "help",
        "inventory",
        "look",
        "take apple 2 from countertop 1",
        "take knife 1 from countertop 1",
        "take mug 1 from coffeemachine 1",
        "take mug 1 from countertop 1",
        "take papertowelroll 1 from countertop 1",
    ]
    assert "go to coffeemachine 1" not in commands  # same location: it would change nothing


def test_closed_receptacle_hides_and_open_receptacle_shows() -> None:
    assert play(GAME, "go to drawer 2")[1] == "You arrive at drawer 2. The drawer 2 is closed."
    state, shown = play(GAME, "go to drawer 2", "open drawer 2")
    assert shown == "You open the drawer 2. The drawer 2 is open. In it, you see a pen 1."
    assert "take pen 1 from drawer 2" in native.admissible(GAME, state)
    assert play(GAME, "go to drawer 2", "open drawer 2", "close drawer 2")[1] == (
        "You close the drawer 2."
    )


def test_an_object_in_two_receptacles_stays_in_the_other() -> None:
    state, _ = play(GAME, "go to countertop 1", "take mug 1 from countertop 1")
    assert ("inreceptacle", "mug 1", "coffeemachine 1") in native.facts(GAME, state)
    assert ("not_inreceptacle", "mug 1", "countertop 1") in native.facts(GAME, state)


def test_look_lists_what_was_taken_out_next_to_it() -> None:
    commands = (
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "move mug 1 to coffeemachine 1",
    )
    assert play(GAME, *commands, "look")[1] == (
        "You are facing the coffeemachine 1, and countertop 1. Next to it, you see a mug 1."
    )


FETCH_APPLE = ("go to countertop 1", "take apple 2 from countertop 1")


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ((), "There's nothing special about apple 2."),
        (("go to sinkbasin 1", "clean apple 2 with sinkbasin 1"), "This is a clean apple 2."),
        (("go to microwave 1", "heat apple 2 with microwave 1"), "This is a hot apple 2."),
        (("go to fridge 1", "cool apple 2 with fridge 1"), "This is a cold apple 2."),
        (
            (
                "go to sinkbasin 1",
                "clean apple 2 with sinkbasin 1",
                "go to microwave 1",
                "heat apple 2 with microwave 1",
            ),
            "This is a hot and clean apple 2.",
        ),
        (
            (
                "go to microwave 1",
                "heat apple 2 with microwave 1",
                "go to fridge 1",
                "cool apple 2 with fridge 1",
                "go to sinkbasin 1",
                "clean apple 2 with sinkbasin 1",
            ),
            "This is a cool and clean apple 2.",
        ),
    ],
)
def test_examine_tells_the_condition(commands: tuple[str, ...], expected: str) -> None:
    assert play(GAME, *FETCH_APPLE, *commands, "examine apple 2")[1] == expected


def test_slice_needs_the_knife_in_the_hand() -> None:
    state, shown = play(
        GAME, "go to countertop 1", "take knife 1 from countertop 1", "slice apple 2 with knife 1"
    )
    assert shown == "You sliced the apple 2 with the knife 1."
    assert ("issliced", "apple 2") in native.facts(GAME, state)
    assert play(GAME, "go to countertop 1", "slice apple 2 with knife 1")[1] == native.NOTHING


def test_use_switches_on_for_good() -> None:
    state, shown = play(GAME, "go to desk 1", "use desklamp 1")
    assert shown == "You turn on the desklamp 1."
    again, shown = native.step(GAME, state, "use desklamp 1")
    assert shown == "You turn on the desklamp 1."
    assert again == state
    assert ("istoggled", "desklamp 1") in native.facts(GAME, again)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "   ",
        "dance",
        "LOOK",
        "look around",
        "take",
        "open desk 1",
        "examine pen 1",
        "use mug 1",
    ],
)
def test_inadmissible_commands_change_nothing(command: str) -> None:
    before, _ = play(GAME, "go to countertop 1")
    assert native.step(GAME, before, command) == (before, "Nothing happens.")


def test_blanks_around_a_command_are_ignored() -> None:
    assert play(GAME, "  go to desk 1 \n")[1] == play(GAME, "go to desk 1")[1]


def test_every_admissible_command_is_accepted_and_no_other() -> None:
    rng = random.Random(0)
    seen: set[str] = set()
    state = native.initial_state(GAME)
    for _ in range(400):
        commands = native.admissible(GAME, state)
        assert list(commands) == sorted(set(commands))
        for command in seen.difference(commands):
            assert native.step(GAME, state, command) == (state, native.NOTHING)
        for command in commands:
            assert native.step(GAME, state, command)[1] != native.NOTHING
        seen.update(commands)
        state, _ = native.step(GAME, state, rng.choice(commands))


def test_walkthrough_wins_and_commands_after_the_end_go_on() -> None:
    state = native.initial_state(GAME)
    for command in WALKTHROUGH:
        assert not native.is_won(GAME, state)
        state, _ = native.step(GAME, state, command)
    assert native.is_won(GAME, state)
    state, shown = native.step(GAME, state, "take apple 1 from countertop 1")
    assert shown == "You pick up the apple 1 from the countertop 1."
    assert not native.is_won(GAME, state)


def test_states_are_values() -> None:
    start = native.initial_state(GAME)
    there = play(GAME, "go to desk 1", "go to drawer 1", "go to desk 1")[0]
    back = play(GAME, "go to desk 1", "go to drawer 1", "go to desk 1")[0]
    assert there == back
    assert hash(there) == hash(back)
    assert len({start, there, back}) == 2
    assert native.initial_state(GAME) == start  # steps left it alone


def test_incremental_digest_is_the_digest_of_the_facts() -> None:
    rng = random.Random(1)
    state = native.initial_state(GAME)
    for _ in range(300):
        assert state.digest == facts_digest(native.facts(GAME, state))
        state, _ = native.step(GAME, state, rng.choice(native.admissible(GAME, state)))


def test_state_hash_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """The value is also pinned: stored snapshots must stay restorable."""
    task = write_task(tmp_path, handmade_game())
    program = (
        "import sys; from pathlib import Path; from sero_core.types import Task; "
        "from sero_core.envs.alfworld import AlfworldEnv; "
        "env = AlfworldEnv(cache_dir=Path(sys.argv[1])); "
        "env.reset(Task('t', 'alfworld', 'train', 'x', sys.argv[2], sys.argv[3])); "
        "env.step('go to desk 1'); env.step('use desklamp 1'); "
        "sys.stdout.write(env.snapshot().state_hash)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), task.path, task.content_hash],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    env = AlfworldEnv(cache_dir=tmp_path)
    env.reset(task)
    env.step("go to desk 1")
    env.step("use desklamp 1")
    assert found == {env.snapshot().state_hash}


@pytest.mark.parametrize(
    ("goal", "commands", "is_won"),
    [
        ("(and (exists (?r - receptacle) (and (opened ?r))))", ("go to drawer 1",), False),
        (
            "(and (exists (?r - receptacle) (and (opened ?r))))",
            ("go to drawer 1", "open drawer 1"),
            True,
        ),
        ("(or (holdsAny agent1) (checked agent1))", ("inventory",), True),
        ("(and (not (holdsAny agent1)) (checked agent1))", ("help",), True),
        (
            "(and (exists (?o1 - object ?o2 - object) (and (not (= ?o1 ?o2)) (isClean ?o1) "
            "(isClean ?o2))))",
            (*FETCH_APPLE, "go to sinkbasin 1", "clean apple 2 with sinkbasin 1"),
            False,
        ),
    ],
)
def test_goals_are_interpreted(goal: str, commands: tuple[str, ...], is_won: bool) -> None:
    game = compiled(goal=goal)
    assert native.is_won(game, play(game, *commands)[0]) is is_won
