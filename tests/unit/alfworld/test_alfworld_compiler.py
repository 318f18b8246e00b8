"""Which files are games, which games are played natively, and what names mean."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sero_core.envs.alfworld import AlfworldEnv
from sero_core.envs.alfworld.codec import decode, encode
from sero_core.envs.alfworld.compiler import compile_game, display_names
from sero_core.envs.alfworld.domain import UnsupportedGame
from tests.support.alfworld import handmade_game, write_task


def raw_game(**changes: object) -> bytes:
    return json.dumps(handmade_game(**changes)).encode()


def test_instances_are_numbered_from_the_last_id_backwards() -> None:
    names = display_names(
        ["mug_bar_a", "mug_bar_b", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "agent1", "mugtype"]
    )
    assert names == {
        "mug_bar_a": "mug 2",
        "mug_bar_b": "mug 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_1": "sink 1",
        "agent1": "agent1 ",
        "mugtype": "mugtype ",
    }


def test_a_compiled_game_survives_json() -> None:
    game = compile_game(raw_game())
    assert decode(encode(game), game.content_hash) == game


def test_decoding_another_game_or_rubbish_is_refused() -> None:
    game = compile_game(raw_game())
    with pytest.raises(ValueError, match="expected"):
        decode(encode(game), "0" * 64)
    with pytest.raises(ValueError, match="not a compiled game"):
        decode("{}", game.content_hash)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": "(define (domain other))"}, "unknown PDDL domain"),
        ({"grammar": "Your task is to: UNKNOWN GOAL."}, "unknown text grammar"),
        ({"task": "put #mug# in {r}."}, "grammar symbols"),
        ({"extra": ["(atLocation agent1 loc_bar_1)"]}, "1 agents, at"),
        ({"extra": ["(receptacleAtLocation Desk_bar_1 loc_bar_1)"]}, "2 locations"),
        ({"extra": ["(inReceptacle Desk_bar_1 Drawer_bar_1)"]}, "unexpected arguments"),
        ({"goal": "(not (exists (?o - object) (isHot ?o)))"}, "under a negation"),
        ({"goal": "(forall (?r - receptacle) (opened ?r))"}, "under a negation"),
    ],
)
def test_unknown_logic_is_left_to_the_reference_engine(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UnsupportedGame, match=message):
        compile_game(raw_game(**changes))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"pddl_domain": 1}'])
def test_a_file_that_is_no_game_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"not valid JSON|not a game file"):
        compile_game(raw)


def test_unbalanced_pddl_is_an_error() -> None:
    game = handmade_game()
    problem = game["pddl_problem"]
    assert isinstance(problem, str)
    game["pddl_problem"] = problem[:-3]
    with pytest.raises(UnsupportedGame, match="balanced"):
        compile_game(json.dumps(game).encode())


@pytest.mark.slow
def test_an_unknown_game_is_played_by_the_reference_engine_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("alfworld")
    comment = f"{handmade_game()['pddl_domain']}\n;; one more line\n"
    task = write_task(tmp_path, handmade_game(domain=comment))
    known = write_task(tmp_path, handmade_game(), trial="trial_T2")
    env = AlfworldEnv(cache_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        observation = env.reset(task)
    assert task.path in caplog.text
    assert "unknown PDDL domain" in caplog.text
    assert env.snapshot().handle is None
    assert observation == AlfworldEnv(cache_dir=tmp_path).reset(known)


def test_a_file_changed_since_it_was_listed_is_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, handmade_game())
    Path(task.path).write_bytes(raw_game(task="put a cold apple in desk."))
    with pytest.raises(ValueError, match="changed since it was listed"):
        AlfworldEnv(cache_dir=tmp_path).reset(task)


def test_an_environment_without_an_episode_says_so() -> None:
    env = AlfworldEnv()
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("look")
