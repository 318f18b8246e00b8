"""Every golden record of a loss: values and gradients of public reference implementations.

Origin: tests/golden/README.md. `SERO_GOLDEN=FOLDER` compares another set of the same format.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.golden_losses import FILES, read, replay

FOLDER = Path(os.environ.get("SERO_GOLDEN") or Path(__file__).parent)
NOT_OURS = {"loss_f32", "f32_diff"}


def groups() -> list[Any]:
    """The records of one function with one setting of its words and switches; numbers may vary."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for name in FILES:
        batches, records = read(FOLDER, name)
        for record in records:
            words = [
                str(v) for _, v in sorted(record["params"].items()) if isinstance(v, str | bool)
            ]
            found["-".join([record["fn"], *words])].append((record, batches[record["batch"]]))
    return [pytest.param(records, id=key) for key, records in found.items()]


def plain(out: dict[str, Any]) -> dict[str, Any]:
    """Outputs of the double run, under one name each."""
    names = {key: key.removeprefix("actor/").removeprefix("pg_") for key in out}
    return {names[key]: value for key, value in out.items() if key not in NOT_OURS}


@pytest.mark.parametrize("records", groups())
def test_record(records: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for record, batch in records:
        got, want = replay(record, batch), plain(record["out"])
        if "raises" in want:  # the reference divides by zero where every weight is rejected
            assert not np.any(got["weights"]), record["id"]
            assert got["rollout_is_mean"] == 0.0
            continue
        assert got.keys() == want.keys(), record["id"]
        for key, value in got.items():
            np.testing.assert_allclose(
                value, want[key], rtol=2e-7, atol=2e-7, err_msg=f"{record['id']}: {key}"
            )


def test_every_record_is_compared() -> None:
    total = sum(len(read(FOLDER, name)[1]) for name in FILES)
    assert total == sum(len(group.values[0]) for group in groups())
