"""T26: HGPO leaves out items that are exactly 0 and renormalises the rest, so a one-bit residue
(T25) changes the weights of all other items of that row (worst change seen: 1.78). Results equal
the exact rule of the golden set (`out`), not what the same code returns in float32 (`f32_diff`)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sero_core.credit.hgpo import hierarchical_advantages
from sero_core.credit.statistics import group_advantages

GOLDEN = Path(__file__).parents[1] / "golden" / "hgpo.json.gz"
with gzip.open(GOLDEN, "rt") as file:
    FIGURES: dict[str, Any] = json.load(file)
RECORDS = [record for record in FIGURES["records"] if record["out"].get("f32_diff")]


def test_t26_the_golden_set_has_rows_where_the_residue_matters() -> None:
    gaps = [
        abs(value - record["out"]["adv_row"][row])
        for record in RECORDS
        for row, value in record["out"]["f32_diff"]
    ]
    assert len(RECORDS) > 30
    assert max(gaps) > 0.3


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_t26_the_exact_rule_and_not_its_float32_residue(record: dict[str, Any]) -> None:
    batch, params = FIGURES["batches"][record["batch"]], record["params"]
    with_std = params["mode"] == "mean_std_norm"
    base = group_advantages(
        batch["row_score"],
        batch["group"],
        batch["traj"],
        statistics="rows",
        singleton="raw",
        normalize_std=with_std,
    )
    got = hierarchical_advantages(
        batch["step_reward"],
        batch["group"],
        batch["traj"],
        batch["step"],
        batch["anchor_obs"],
        history_length=params["history_length"],
        alpha=params["length_weight_alpha"],
        normalize_std=with_std,
        base_N=base if params["base_group"] else None,
    )
    np.testing.assert_allclose(got, record["out"]["adv_row"], rtol=2e-7, atol=2e-7)
    for row, value in record["out"]["f32_diff"]:
        assert abs(got[row] - value) > 5e-6


def test_t26_three_values_whose_mean_is_one_of_them() -> None:
    """0.1 three times has a float64 mean of 0.1 + one bit: the k = 1 items must still be dropped,
    so that the k = 0 item (the episode's) has all the weight."""
    got = hierarchical_advantages(
        [0.1, 0.1, 0.1],
        ["g"] * 3,
        ["a", "b", "c"],
        [0, 0, 0],
        ["x"] * 3,
        history_length=0,
        normalize_std=False,
        base_N=[1.0, -2.0, 0.5],
    )
    assert got.tolist() == pytest.approx([1.0, -2.0, 0.5], abs=1e-5)
