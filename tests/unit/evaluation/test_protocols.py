"""Which tasks the protocols play: all of them once, or what verl-agent's workers would draw."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sero_core.config import ConfigError, parse_config
from sero_core.protocols import FixedProtocol, PaperProtocol
from sero_core.types import SeroError
from tests.support.episodes import TASK

GAMES = tuple(replace(TASK, task_id=f"valid_seen/{i:03}", split="valid_seen") for i in range(140))
GOALS = tuple(replace(TASK, env="webshop", task_id=f"test/{i}", split="test") for i in range(500))


def test_fixed_is_the_list_whatever_the_seed_and_the_number() -> None:
    fixed = FixedProtocol()
    assert fixed(GAMES, 1, 0) == fixed(GAMES, 2, 9) == GAMES
    assert fixed.panels(("valid_seen", "valid_unseen")) == ("valid_seen", "valid_unseen")


def test_paper_draws_128_of_valid_seen_with_repetition_and_anew_each_time() -> None:
    paper = PaperProtocol()
    assert paper.panels(("valid_seen", "valid_unseen")) == ("valid_seen",)
    first, second = paper(GAMES, 1000, 0), paper(GAMES, 1000, 1)
    assert len(first) == len(second) == 128
    assert first == paper(GAMES, 1000, 0)
    assert first != second
    assert 70 < len(Counter(first)) < 100, "expected 140 (1 - (139/140)^128) = 84 different games"


def test_paper_draws_as_the_stock_workers_do() -> None:
    """Each worker is TextWorld's own gym, seeded 1000 + i, with the whole list."""
    textworld = pytest.importorskip(
        "textworld.gym.envs.textworld_batch", reason="needs the extra alfworld"
    )
    games = GAMES[:9]
    streams: list[list[str]] = []
    for worker in range(6):
        gym = textworld.TextworldBatchGymEnv.__new__(textworld.TextworldBatchGymEnv)
        gym.gamefiles = [game.task_id for game in games]
        gym.seed(1000 + worker)
        streams.append([next(gym._gamefiles_iterator) for _ in range(25)])
    for number in range(25):
        drawn = PaperProtocol(num_draws=6)(games, 1000, number)
        assert [game.task_id for game in drawn] == [stream[number] for stream in streams]


def test_paper_chooses_webshop_goals_as_one_generator_would() -> None:
    rng = np.random.RandomState(1000)
    for number in range(3):
        expected = rng.choice(range(500), size=128, replace=False)
        drawn = PaperProtocol()(GOALS, 1000, number)
        assert [int(goal.task_id.split("/")[1]) for goal in drawn] == expected.tolist()
        assert len(set(drawn)) == 128


def test_paper_needs_enough_webshop_goals() -> None:
    with pytest.raises(SeroError, match=r"num_draws is 128, but test has only 100"):
        PaperProtocol()(GOALS[:100], 1000, 0)


def test_panels_that_the_environment_does_not_have_are_named() -> None:
    with pytest.raises(ConfigError, match=r"panels.*no split test.*valid_seen, valid_unseen"):
        parse_config({"evaluation": {"panels": ["test"]}}, "test")
