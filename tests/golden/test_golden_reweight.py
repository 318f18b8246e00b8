"""Every golden record of SERL's reweighting. Origin: tests/golden/README.md."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sero_core.reweight.serl import mixing_at, sign_aware_weights

FOLDER = Path(os.environ.get("SERO_GOLDEN") or Path(__file__).parent)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with gzip.open(FOLDER / "serl.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


def test_every_record_of_serl(golden: dict[str, Any]) -> None:
    assert len(golden["records"]) >= 100
    for record in golden["records"]:
        batch, params, want = golden["batches"][record["batch"]], record["params"], record["out"]
        masks = [np.array(batch[name], dtype=bool) for name in ("response_mask", "action_mask")]
        mixing = mixing_at(
            params["mixing_lambda"], params["lambda_decay_steps"], params["update_step"]
        )
        got = sign_aware_weights(
            *(np.array(batch[key]) for key in ("advantages", "student_logp", "teacher_logp")),
            *masks,
            np.array(batch["row_mask"], dtype=bool) if params["row_mask_used"] else None,
            mixing=mixing,
            weight_clip=params["weight_clip"],
        )
        np.testing.assert_allclose(
            got.advantages_BL, want["advantages"], rtol=1e-6, atol=1e-7, err_msg=record["id"]
        )
        names = {"effective_lambda": "mixing"}
        for key in (
            "effective_lambda",
            "weight_mean",
            "weight_min",
            "weight_max",
            "selected_fraction",
            "clipped_fraction",
        ):
            value = getattr(got, names.get(key, key))
            assert value == pytest.approx(want[key], rel=1e-6, abs=1e-7), (record["id"], key)
