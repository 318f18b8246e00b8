"""The paired difference: by hand, by McNemar's table, and by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.paired import compare, mcnemar


def test_mcnemar_by_hand() -> None:
    # 1 and 6 discordant tasks: 2 (C(7,0) + C(7,1)) / 2^7 = 16 / 128
    assert mcnemar(1, 6) == pytest.approx(0.125)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 10) == pytest.approx(2 / 1024)


def test_a_clear_win_and_no_difference() -> None:
    a = {f"t{i}": [0.0] for i in range(40)}
    b = {f"t{i}": [1.0 if i < 30 else 0.0] for i in range(40)}
    found = compare(a, b)
    assert found is not None
    assert (found.rate_a, found.rate_b, found.difference) == (0.0, 0.75, 0.75)
    assert (found.only_a, found.only_b) == (0, 30)
    assert found.low > 0.55
    assert found.p_value == pytest.approx(2 / 2**30)
    assert found.verdict.startswith("B is better by +75.0 points")
    assert compare(b, a).verdict.startswith("B is worse by -75.0")  # pyright: ignore
    same = compare(a, a)
    assert same is not None
    assert same.verdict.startswith("no difference that these 40 tasks could show")


def test_seeds_are_averaged_within_a_task() -> None:
    a = {"x": [1.0, 0.0], "y": [1.0, 1.0], "only-a": [1.0]}
    b = {"x": [1.0], "y": [0.0], "only-b": [0.0]}
    found = compare(a, b)
    assert found is not None
    assert (found.num_tasks, found.difference, found.p_value) == (2, -0.25, None)
    assert "these 2 tasks could show" in found.verdict
    assert compare(a, {"z": [1.0]}) is None


results = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3)
)


@given(a=results, b=results)
def test_swapping_sides_swaps_the_sign(
    a: dict[str, list[float]], b: dict[str, list[float]]
) -> None:
    there, back = compare(a, b), compare(b, a)
    if there is None or back is None:
        assert there is back is None
        return
    assert there.difference == pytest.approx(-back.difference)
    assert (there.only_a, there.only_b) == (back.only_b, back.only_a)
    assert there.low - 1e-9 <= there.difference <= there.high + 1e-9
