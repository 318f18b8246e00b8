"""Two rules of splitting, and the report of what leaks."""

from __future__ import annotations

import numpy as np

from sero_core.envs.webshop.goals import GOAL_KINDS
from sero_core.envs.webshop.splits import SPLIT_NAMES, leaks, part_of_product, split_goals
from tests.support.webshop import golden_shop


def counts(num_goals: int) -> list[int]:
    parts = split_goals("original", ["a"] * num_goals)
    return np.bincount(parts, minlength=3).tolist()


def test_the_original_positions() -> None:
    parts = split_goals("original", ["a"] * 6910)
    assert SPLIT_NAMES == ("test", "eval", "train")
    assert (parts[:500] == 0).all()
    assert (parts[500:1500] == 1).all()
    assert (parts[1500:] == 2).all()


def test_few_goals() -> None:
    assert counts(5000) == [500, 1000, 3500]
    assert counts(100) == [10, 20, 70]
    assert counts(1) == [0, 0, 1]
    assert counts(0) == [0, 0, 0]


def test_no_product_on_both_sides() -> None:
    shop = golden_shop()
    wanted: dict[str, set[str]] = {name: set() for name in SPLIT_NAMES}
    for kind in GOAL_KINDS:
        for name in SPLIT_NAMES:
            goals = shop.goals(kind)
            wanted[name] |= {goals[int(i)].asin for i in shop.split("product", name, kind)}
    assert all(wanted.values())
    assert not wanted["test"] & wanted["train"]
    assert not wanted["eval"] & wanted["train"]
    assert not wanted["eval"] & wanted["test"]


def test_a_product_has_its_part_in_every_catalogue() -> None:
    asins = [f"B{number:09d}" for number in range(20_000)]
    shares = [
        sum(part_of_product(asin) == name for asin in asins) / len(asins) for name in SPLIT_NAMES
    ]
    np.testing.assert_allclose(shares, (0.1, 0.2, 0.7), atol=0.01)
    assert [part_of_product(asin) for asin in ("B0X252L09E", "B07N41QF41")] == ["train", "train"]


def test_leaks_by_hand() -> None:
    parts = np.array([0, 0, 0, 1, 1, 2, 2, 2], np.uint8)
    products = np.array([1, 1, 2, 3, 1, 1, 3, 4], np.int32)
    test, evaluation = leaks("original", parts, products)
    assert (test.num_goals, test.num_goals_known) == (3, 2)
    assert (test.num_products, test.num_products_known) == (2, 1)
    assert (evaluation.num_goals, evaluation.num_goals_known) == (2, 2)
    assert (evaluation.num_products, evaluation.num_products_known) == (2, 2)
