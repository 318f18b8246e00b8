"""1,720 purchases: reward and every part of it equal to the original's `get_reward`."""

from __future__ import annotations

from sero_core.envs.webshop.reward import score
from tests.support.webshop import golden_lines, golden_shop


def test_rewards() -> None:
    shop = golden_shop()
    records = golden_lines("rewards.jsonl.gz")
    for record in records:
        parts = score(
            shop,
            shop.goals(record["goals"])[record["goal"]],
            shop.index_of(record["asin"]),
            tuple(record["options"].items()),
            "original",
            record["price"],
        )
        assert parts.reward == record["reward"], record
        assert parts.details() == record["info"], record
    assert len(records) == 1720


def test_ceiling_of_the_original() -> None:
    """The perfect purchase of the goal table: 578 of 678 synthetic goals can reach 1.0 by it.

    The five that `fixed` leaves have a wish without a letter or digit ("", "]"), which is similar
    to nothing, or an attribute that the product has not.
    """
    shop = golden_shop()
    goals = shop.goals("synthetic")
    perfect = {
        variant: sum(
            score(
                shop,
                goal,
                goal.product,
                tuple((name or "", value) for name, value in goal.options),
                variant,
            ).reward
            == 1.0
            for goal in goals
        )
        for variant in ("original", "fixed")
    }
    assert perfect == {"original": 578, "fixed": 673}
