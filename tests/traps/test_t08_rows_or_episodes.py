"""T8: group statistics over steps where episodes are meant: long episodes dominate mean and std.

Fixture: A wins in two steps (reward 10), B fails in one. Over rows [3.33, 3.33, -6.67], over
episodes [5, 5, -5].
"""

from __future__ import annotations

import pytest

from sero_core.config import RunConfig
from tests.support.credit import flat
from tests.support.episodes import group_of

FIXTURE = group_of([10.0, 0.0], [2, 1])


@pytest.mark.parametrize(
    ("name", "statistics", "expected"),
    [
        ("dr_grpo", "episodes", [5.0, 5.0, -5.0]),
        ("dr_grpo", "first_rows", [5.0, 5.0, -5.0]),
        ("dr_grpo", "rows", [10 / 3, 10 / 3, -20 / 3]),
        ("grpo", "episodes", [0.7071067, 0.7071067, -0.7071067]),
        ("grpo", "rows", [0.5773502, 0.5773502, -1.1547004]),
        ("rloo", "episodes", [10.0, 10.0, -10.0]),
        ("rloo", "rows", [5.0, 5.0, -10.0]),
    ],
)
def test_t08_both_readings_by_name(name: str, statistics: str, expected: list[float]) -> None:
    config = RunConfig.model_validate({"estimator": {"name": name, "statistics": statistics}})
    assert flat(config.estimator([FIXTURE])) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "gspo", "rloo", "gigpo", "hgpo"])
def test_t08_episodes_are_the_default(name: str) -> None:
    config = RunConfig.model_validate({"estimator": {"name": name}})
    assert config.model_dump()["estimator"]["statistics"] == "episodes"


def test_t08_copies_of_a_long_failure_do_not_move_an_episode_mean() -> None:
    short, long = group_of([10.0, 0.0], [1, 1]), group_of([10.0, 0.0], [1, 40])
    config = RunConfig.model_validate({"estimator": {"name": "grpo"}})
    assert flat(config.estimator([short]))[0] == flat(config.estimator([long]))[0]
