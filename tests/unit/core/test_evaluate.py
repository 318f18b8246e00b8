"""Wilson intervals and the per-type table of an evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.evaluate import Panel, summarize, wilson_interval
from sero_core.types import Task


def test_wilson_interval_against_published_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81/263, 15/148, 0/20, 1/29
    for won, total, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        got = wilson_interval(won, total)
        assert got == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_interval_contains_the_rate_and_stays_in_range(won: int, lost: int) -> None:
    low, high = wilson_interval(won, won + lost)
    assert 0 <= low <= high <= 1
    if won + lost:
        assert low - 1e-12 <= won / (won + lost) <= high + 1e-12


def test_rows_of_the_types_add_up_to_all() -> None:
    outcomes = [("a", "look", True, 3), ("b", "look", False, 9), ("c", "pick", True, 5)]
    rows = summarize("valid_seen", outcomes)
    assert [(row.task_type, row.num_won, row.num_tasks) for row in rows] == [
        ("all", 2, 3),
        ("look", 1, 2),
        ("pick", 1, 1),
    ]
    assert rows[0].mean_steps == pytest.approx(17 / 3)


def test_panel_hash_covers_order_and_contents() -> None:
    a, b = (Task(name, "alfworld", "train", "x", "", "hash" + name) for name in "ab")
    other = Task("a", "alfworld", "train", "x", "", "changed")
    hashes = {Panel("p", tasks).hash for tasks in [(a, b), (b, a), (other, b)]}
    assert len(hashes) == 3
