"""What earns 1.0: exact options where they do, others where not, nothing that cannot be clicked."""

from __future__ import annotations

import pytest

from sero_core.envs.webshop.goals import GOAL_KINDS, GoalKind
from sero_core.envs.webshop.purchase import selectable, winning_choice
from sero_core.envs.webshop.reward import REWARD_VARIANTS, RewardVariant, score
from tests.support.webshop import golden_shop


@pytest.mark.parametrize("variant", REWARD_VARIANTS)
@pytest.mark.parametrize("kind", GOAL_KINDS)
def test_a_choice_wins_and_is_clickable(kind: GoalKind, variant: RewardVariant) -> None:
    shop = golden_shop()
    num_won = 0
    for goal in shop.goals(kind):
        choice = winning_choice(shop, goal, variant)
        if choice is None:
            continue
        num_won += 1
        groups = selectable(shop.product(goal.product))
        assert all(groups[value] == name for name, value in choice)
        assert len({name for name, _ in choice}) == len(choice)
        assert score(shop, goal, goal.product, choice, variant).reward == 1.0
    assert (
        num_won
        == {
            ("synthetic", "original"): 528,
            ("synthetic", "fixed"): 621,
            ("human", "original"): 73,
            ("human", "fixed"): 73,
        }[kind, variant]
    )


def test_no_choice_means_the_exact_options_fail_or_cannot_be_clicked() -> None:
    """Or that no search finds the product: "To Be Or Not" has only stop words."""
    shop = golden_shop()
    for goal in shop.goals("synthetic"):
        if goal.asin == "B964QKWB7U":
            assert winning_choice(shop, goal, "original") is None
            continue
        exact = [(name or "", value) for name, value in goal.options]
        groups = selectable(shop.product(goal.product))
        can_be_chosen = all(groups.get(value) == name for name, value in exact)
        reward = score(shop, goal, goal.product, exact, "original").reward
        if winning_choice(shop, goal, "original") is None:
            assert not can_be_chosen or reward < 1.0


def test_selectable_leaves_out_labels_and_brackets_and_takes_the_last_group() -> None:
    shop = golden_shop()
    labels = selectable(shop.product(shop.index_of("B9PGYC1HAZ")))
    assert labels == {"sale": "print", "next >": "style", "open": "style"}
    marks = selectable(shop.product(shop.index_of("B9A0KZKUQ9")))
    assert "box [2 pcs]" not in marks
    assert marks["]"] == "set"
    twice = selectable(shop.product(shop.index_of("B9CBY92HW0")))
    assert twice["black"] == "bottom color"
    assert twice["white"] == "top color"
