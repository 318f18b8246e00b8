"""T9: GiGPO's std has ddof 1, HGPO's ddof 0; HGPO leaves out items that are exactly 0 before its
weights are normalised; weights grow as (k + 1)^alpha. Compared with figures of the papers' code on
every batch of the golden set, through the config classes and groups as a run uses them."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sero_core.config import RunConfig
from sero_core.credit.gigpo import step_advantages
from sero_core.credit.hgpo import hierarchical_advantages
from sero_core.types import Group
from tests.support.credit import make_episode
from tests.support.episodes import TASK

GOLDEN = Path(__file__).parents[1] / "golden"
Data = dict[str, Any]


@cache
def figures(name: str) -> Data:
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        return json.load(file)


def groups_of(batch: Data) -> tuple[list[Group], list[list[list[int]]]]:
    """The batch as groups of episodes, and the batch's row behind each step."""
    episodes: dict[str, dict[str, list[int]]] = {}
    for row, (group, traj) in enumerate(zip(batch["group"], batch["traj"], strict=True)):
        episodes.setdefault(group, {}).setdefault(traj, []).append(row)
    ordered = [
        [sorted(rows, key=lambda row: batch["step"][row]) for rows in group.values()]
        for group in episodes.values()
    ]
    penalty = float(np.float32(batch["invalid_penalty"]))
    groups = [
        Group(
            TASK,
            tuple(
                make_episode(
                    [batch["env_reward"][row] for row in rows],
                    index=index,
                    texts=[batch["anchor_obs"][row] for row in rows],
                    penalties=[0.0 if batch["action_valid"][row] else penalty for row in rows],
                )
                for index, rows in enumerate(group)
            ),
        )
        for group in ordered
    ]
    return groups, ordered


def compare(name: str, record: Data, options: Data) -> None:
    batch = figures(name)["batches"][record["batch"]]
    groups, places = groups_of(batch)
    conventions = {"statistics": "rows", "singleton": "raw", "penalty": "row"}
    estimator = RunConfig.model_validate(
        {"estimator": conventions | {"name": name, "gamma": batch["gamma"]} | options}
    ).estimator
    got = np.zeros(len(batch["group"]))
    for arrays, rows_of_group in zip(estimator(groups).advantages, places, strict=True):
        for values, rows in zip(arrays, rows_of_group, strict=True):
            got[rows] = values
    # the reference's returns are float32; ours are not, hence not 2e-7
    np.testing.assert_allclose(got, record["out"]["adv_row"], rtol=2e-5, atol=2e-5)


def records(name: str, **wanted: object) -> list[Any]:
    return [
        pytest.param(record, id=record["id"])
        for record in figures(name)["records"]
        if wanted.items() <= record["params"].items()
    ]


@pytest.mark.parametrize(
    "record",
    [
        param
        for param in records("gigpo", part="total")
        if "similarity" not in param.values[0]["params"]
    ],
)
def test_t09_gigpo_on_every_batch(record: Data) -> None:
    params = record["params"]
    options = {
        "normalize_std": params["mode"] == "mean_std_norm",
        "step_coef": params["step_advantage_w"],
    }
    compare("gigpo", record, options)


@pytest.mark.parametrize(
    "record",
    [
        *records("hgpo", history_length=2, length_weight_alpha=1.0, mode="mean_std_norm"),
        *records("hgpo", history_length=4, length_weight_alpha=2.0, mode="mean_norm"),
    ],
)
def test_t09_hgpo_on_every_batch(record: Data) -> None:
    params = record["params"]
    options = {
        "normalize_std": params["mode"] == "mean_std_norm",
        "history_length": params["history_length"],
        "alpha": params["length_weight_alpha"],
        "base_group": params["base_group"],
    }
    compare("hgpo", record, options)


def hgpo(returns: list[float], alpha: float = 1.0) -> list[float]:
    """Episodes a, b, c of two steps. All end in x; b and c came from s, a from t. The advantages
    of the three last steps, whose returns are given: k = 1 compares all, k = 2 only b and c."""
    got = hierarchical_advantages(
        [0.0, 0.0, 0.0, *returns],
        ["g"] * 6,
        ["a", "b", "c"] * 2,
        [0, 0, 0, 1, 1, 1],
        ["t", "s", "s", "x", "x", "x"],
        history_length=1,
        alpha=alpha,
        normalize_std=False,
    )
    return got[3:].tolist()


def test_t09_an_item_that_is_exactly_zero_has_no_weight() -> None:
    """b is the mean of all three, so its k = 1 item is 0: k = 2 counts in full, -0.5, not -0.3."""
    assert hgpo([0.0, 1.0, 2.0]) == pytest.approx([-1.0, -0.5, (2 * 1.0 + 3 * 0.5) / 5], abs=1e-5)


@pytest.mark.parametrize(("alpha", "one", "two"), [(0.0, 1, 1), (1.0, 2, 3), (2.0, 4, 9)])
def test_t09_weights_grow_with_the_length_of_the_history(alpha: float, one: int, two: int) -> None:
    expected = [-2.0, (-2.0 * one - 3.0 * two) / (one + two), (4.0 * one + 3.0 * two) / (one + two)]
    assert hgpo([0.0, 0.0, 6.0], alpha) == pytest.approx(expected, abs=1e-5)


def test_t09_step_stds_differ_in_ddof() -> None:
    """Returns 0 and 2: 1 either side over a population std of 1, or a sample std of sqrt 2."""
    rows = ([0.0, 2.0], ["g", "g"], ["a", "b"], [0, 0], ["x", "x"])
    assert hierarchical_advantages(*rows, history_length=0)[1] == pytest.approx(1.0, abs=1e-5)
    assert step_advantages(rows[0], rows[4])[1] == pytest.approx(0.70711, abs=1e-5)
