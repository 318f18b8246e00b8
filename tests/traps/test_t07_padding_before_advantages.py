"""T7: the batch is padded by copying rows before group statistics. A clean group
[.866, .866, -.866, -.866] then becomes [.730, .730, -1.095, -1.095, .730]: copies count twice in
mean, std and loss. Here a batch has one row per step, whatever the minibatch size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sero_core.batch import build_batch
from sero_core.config import RunConfig
from sero_core.credit.table import row_table
from sero_core.optimizer_steps import minibatches
from sero_core.rows import policy_rows
from sero_core.types import Group
from tests.support.credit import flat, random_groups
from tests.support.episodes import group_of

CLEAN: Group = group_of([1.0, 1.0, 0.0, 0.0], [1, 1, 1, 1])


@pytest.mark.parametrize("statistics", ["rows", "episodes"])
def test_t07_a_group_is_not_changed_by_the_size_of_a_minibatch(statistics: str) -> None:
    for minibatch_rows in (1, 3, 4, 5, 256):
        config = RunConfig.model_validate(
            {
                "estimator": {"name": "grpo", "statistics": statistics},
                "optimizer": {"minibatch_rows": minibatch_rows},
            }
        )
        credits = config.estimator([CLEAN])
        assert flat(credits) == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
        batch = build_batch(policy_rows([CLEAN], credits.advantages, 1.0))
        assert [float(row[0]) for row in batch.advantages] == pytest.approx(flat(credits))


@pytest.mark.parametrize("seed", range(5))
def test_t07_every_step_is_one_row_and_no_row_is_made_up(seed: int) -> None:
    groups = random_groups(np.random.default_rng(seed), num_groups=3, group_size=3)
    steps = [s for group in groups for episode in group.episodes for s in episode.steps]
    table = row_table(groups)
    assert len(table.rewards_N) == len(steps)
    assert max(Counter(zip(table.episodes_N, table.steps_N, strict=True)).values()) == 1
    rows = policy_rows(groups, RunConfig().estimator(groups).advantages, 1.0)
    assert len(rows) == len(steps)


def test_t07_every_row_is_in_one_minibatch_of_an_epoch() -> None:
    for num_rows, minibatch_rows in ((5, 4), (7, 3), (4, 4), (3, 256)):
        parts = minibatches(num_rows, minibatch_rows, np.random.default_rng(0))
        assert sorted(row for part in parts for row in part) == list(range(num_rows))
        again = minibatches(num_rows, minibatch_rows, np.random.default_rng(0))
        assert parts == again, "the same seed gives the same batches"
