"""Prices and goals from the named seeds, bit for bit as the original engine draws them."""

from __future__ import annotations

import pytest

from sero_core.envs.webshop.goals import GOAL_KINDS, GoalKind
from tests.support.webshop import golden_json, golden_shop


def test_products_and_prices() -> None:
    shop = golden_shop()
    prices = {shop.product(i).asin: shop.price(i) for i in range(shop.num_products)}
    assert prices == golden_json("goals.json")["prices"]


@pytest.mark.parametrize("kind", GOAL_KINDS)
def test_goals(kind: GoalKind) -> None:
    goals = golden_shop().goals(kind)
    expected = golden_json("goals.json")[kind]
    assert len(goals) == len(expected)
    for goal, figure in zip(goals, expected, strict=True):
        values = [value for _, value in goal.options]
        options = dict(goal.options) if kind == "synthetic" else values
        assert options == figure["goal_options"]
        assert list(options) == list(figure["goal_options"])
        assert goal.product == golden_shop().index_of(goal.asin)
        assert (
            goal.index,
            goal.asin,
            goal.instruction_text,
            list(goal.attributes),
            goal.price_upper,
            goal.weight,
        ) == tuple(
            figure[key]
            for key in (
                "index",
                "asin",
                "instruction_text",
                "attributes",
                "price_upper",
                "weight",
            )
        )
