"""The purchase that earns 1.0 for a goal: what an oracle buys, and which goals have one.

A goal counts as solvable when its own product has a word that a search can find, and can be bought
for 1.0 with options that can be clicked. Another product might do where the own one does not; on
WebShop's 1,000-product set none of the 458 synthetic goals whose own product fails has such a
substitute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sero_core.envs.webshop.actions import is_typable
from sero_core.envs.webshop.analysis import analyze
from sero_core.envs.webshop.goals import Goal
from sero_core.envs.webshop.products import Product, index_text
from sero_core.envs.webshop.reward import RewardVariant, option_matches, score
from sero_core.envs.webshop.shop import Shop

Choice = tuple[tuple[str, str], ...]
"""(group, value) pairs, one per group."""

BUTTON_LABELS: Final = frozenset(
    ("search", "back to search", "< prev", "description", "features", "reviews", "attributes")
) | {"buy now"}
"""A value with one of these texts acts as the button."""


def winning_choice(shop: Shop, goal: Goal, variant: RewardVariant) -> Choice | None:
    """Options of the goal's product that earn exactly 1.0, as few as needed and the exact values
    where they do; None where no choice does or no search finds the product.
    """
    if not _is_fitting(shop, goal.product, goal.attributes, goal.price_upper):
        return None
    if not _is_findable(shop, goal.product):
        return None
    groups = _selectable(shop, goal.product)
    exact = tuple((name, value) for name, value in goal.options if name is not None)
    can_be_chosen = all(groups.get(value) == name for name, value in exact)
    if can_be_chosen and len(exact) == len(goal.options) and _matches(exact, goal, variant):
        return exact
    return _cover(goal, groups, variant)


def selectable(product: Product) -> dict[str, str]:
    """Value to the group that a click on it sets: of several groups the last one; no values that
    act as a button or cannot be typed.
    """
    return {
        value: name
        for name, values in product.options
        for value in values
        if value not in BUTTON_LABELS and is_typable(value)
    }


@lru_cache(maxsize=1024)
def _selectable(shop: Shop, product: int) -> dict[str, str]:
    return selectable(shop.product(product))


@lru_cache(maxsize=1024)
def _is_fitting(shop: Shop, product: int, attributes: tuple[str, ...], price_upper: float) -> bool:
    """Whether a goal that wants a product lacks nothing but options when it is bought. The reward
    is 1.0 exactly when nothing is lacking.
    """
    bare = Goal(0, "human", "", product, "", attributes, (), price_upper, 1.0)
    return score(shop, bare, product, (), "original").reward == 1.0


@lru_cache(maxsize=1024)
def _is_findable(shop: Shop, product: int) -> bool:
    """Whether the search index holds any term of a product."""
    return bool(analyze(index_text(shop.product(product))))


def _matches(choice: Choice, goal: Goal, variant: RewardVariant) -> bool:
    return all(
        option_matches(choice[position][1], goal, position, variant)
        or any(option_matches(value, goal, position, variant) for _, value in choice)
        for position in range(len(goal.options))
    )


def _cover(goal: Goal, groups: dict[str, str], variant: RewardVariant) -> Choice | None:
    """One value per group such that every option of the goal is matched by some value."""
    candidates: list[Sequence[tuple[str, str]]] = []
    for position, (_, wanted) in enumerate(goal.options):
        fitting = [
            (name, value)
            for value, name in groups.items()
            if option_matches(value, goal, position, variant)
        ]
        if not fitting:
            return None
        candidates.append(sorted(fitting, key=lambda pair: pair[1] != wanted.lower()))

    def extend(chosen: dict[str, str], position: int) -> dict[str, str] | None:
        if position == len(candidates):
            return chosen
        fitting = candidates[position]
        if any(chosen.get(name) == value for name, value in fitting):
            return extend(chosen, position + 1)
        for name, value in fitting:
            if name not in chosen:
                found = extend({**chosen, name: value}, position + 1)
                if found is not None:
                    return found
        return None

    found = extend({}, 0)
    return None if found is None else tuple(found.items())
