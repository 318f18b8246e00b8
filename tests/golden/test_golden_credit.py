"""Estimators against figures of public reference implementations, every record of each file.

Origin: tests/golden/README.md. `SERO_GOLDEN=FOLDER` runs the same tests on another set of the same
format. Tolerances are those of the set's own description: 2e-7 max(1, |x|) for double figures, 1e-6
where the reference computed in float32.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sero_core.credit.anchors import anchor_labels
from sero_core.credit.gae import gae, whiten
from sero_core.credit.gigpo import step_advantages
from sero_core.credit.hgpo import hierarchical_advantages
from sero_core.credit.returns import discounted_returns
from sero_core.credit.rloo import rloo_advantages
from sero_core.credit.statistics import group_advantages

HERE = Path(os.environ.get("SERO_GOLDEN") or Path(__file__).parent)
Data = dict[str, Any]
VERL: Data = {"singleton": "raw", "ddof": 1}
"""What verl and verl-agent share: unbiased std, the raw reward for a group of one."""


@cache
def figures(name: str) -> Data:
    with gzip.open(HERE / f"{name}.json.gz", "rt") as file:
        return json.load(file)


def check(name: str, function: str, compute: Callable[[Data, Data], dict[str, Any]]) -> None:
    """Every record of one function: same keys, same numbers (`f32_diff` is about float32)."""
    data = figures(name)
    records = [record for record in data["records"] if record["fn"] == function]
    assert records
    for record in records:
        got = compute(data["batches"][record["batch"]], record["params"])
        assert got.keys() == record["out"].keys() - {"f32_diff"}, record["id"]
        tolerance = 1e-6 if record["params"].get("precision") == "float32 inside" else 2e-7
        for key, value in got.items():
            np.testing.assert_allclose(
                value, record["out"][key], rtol=tolerance, atol=tolerance, err_msg=record["id"]
            )


def test_grpo() -> None:
    def compute(batch: Data, params: Data) -> Data:
        values = group_advantages(
            batch["reward"],
            batch["group"],
            normalize_std=params["norm_adv_by_std"],
            eps=params["epsilon"],
            **VERL,
        )
        return {"adv_row": values}

    check("adv_grpo_rloo_gae", "grpo", compute)


def test_rloo() -> None:
    def compute(batch: Data, params: Data) -> Data:
        return {"adv_row": rloo_advantages(batch["reward"], batch["group"], singleton="raw")}

    check("adv_grpo_rloo_gae", "rloo", compute)


def test_gae_and_whitening() -> None:
    def compute(batch: Data, params: Data) -> Data:
        mask = batch["response_mask"]
        raw, returns = gae(
            batch["token_rewards"], batch["values"], mask, gamma=params["gamma"], lam=params["lam"]
        )
        return {"adv_raw": raw, "returns": returns, "adv_whitened": whiten(raw, mask)}

    check("adv_grpo_rloo_gae", "gae", compute)


def test_row_and_first_row_statistics() -> None:
    def compute(batch: Data, params: Data) -> Data:
        values = group_advantages(
            batch["row_score"],
            batch["group"],
            batch["traj"],
            statistics="rows" if params["cross_steps"] else "first_rows",
            normalize_std=not params["remove_std"],
            eps=params["epsilon"],
            **VERL,
        )
        return {"adv_row": values}

    check("adv_grpo_rloo_gae", "episode_norm", compute)


@pytest.mark.parametrize("name", ["gigpo", "hgpo"])
def test_discounted_returns(name: str) -> None:
    def compute(batch: Data, params: Data) -> Data:
        values = discounted_returns(
            batch["env_reward"], batch["traj"], batch["step"], params["gamma"]
        )
        return {"returns": values}

    check(name, "discounted_returns", compute)


def test_gigpo() -> None:
    def compute(batch: Data, params: Data) -> Data:
        labels = anchor_labels(batch["group"], batch["anchor_obs"], params.get("similarity", 1.0))
        if params["part"] == "anchor_groups":
            return {"label": labels}
        with_std = params["mode"] == "mean_std_norm"
        episode = group_advantages(
            batch["row_score"],
            batch["group"],
            batch["traj"],
            statistics="rows" if params.get("cross_steps", True) else "first_rows",
            normalize_std=with_std,
            **VERL,
        )
        step = step_advantages(batch["step_reward"], labels, normalize_std=with_std)
        total = episode + params.get("step_advantage_w", 1.0) * step
        return {"adv_row": {"episode": episode, "step": step, "total": total}[params["part"]]}

    check("gigpo", "gigpo", compute)


def test_hgpo() -> None:
    def compute(batch: Data, params: Data) -> Data:
        with_std = params["mode"] == "mean_std_norm"
        base = group_advantages(
            batch["row_score"],
            batch["group"],
            batch["traj"],
            statistics="rows",
            normalize_std=with_std,
            **VERL,
        )
        values = hierarchical_advantages(
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
        return {"adv_row": values}

    check("hgpo", "hgpo", compute)
