"""The reward of a purchase, from 0 to 1: right kind of product, attributes, options and price.

Source: WebShop, arXiv 2207.01206, section 2.3, as princeton-nlp/WebShop 64fa2a5 computes it:
reward = type * (attributes matched + options matched + [price fits]) / (attributes + options + 1).

`original` keeps a fault: options of synthetic goals are compared as (name, value) pairs, so only
the bought side is reduced to its color and some goals cannot reach 1.0 even with the perfect
purchase. `fixed` compares their values, as both variants do for human goals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from sero_core.envs.webshop.goals import Goal
from sero_core.envs.webshop.products import Product
from sero_core.envs.webshop.shop import Shop

RewardVariant = Literal["original", "fixed"]
REWARD_VARIANTS: Final[tuple[RewardVariant, ...]] = ("original", "fixed")
MIN_SIMILARITY: Final = 85
"""Two texts match above this similarity."""
COLORS: Final = tuple(
    files("sero_core.envs.webshop").joinpath("data/color_words.txt").read_text("utf-8").split()
)
_LATIN_1: Final = dict.fromkeys(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class RewardParts:
    """A reward and what it is made of.

    `type_factor` is 1, 0.5, 0.1 or 0; the shares are matched / wanted (`option_share` is None
    where the goal wants no option); the weights add up to 1. reward = type_factor *
    (attribute_share * attribute_weight + option_share * option_weight + fits * price_weight).
    """

    reward: float
    type_factor: float
    title_score: float
    is_query_match: bool
    is_category_match: bool
    attribute_share: float
    attribute_weight: float
    option_share: float | None
    option_weight: float | None
    is_price_match: bool
    price_weight: float

    def details(self) -> dict[str, float | bool]:
        """The original's `info`, under its own keys."""
        info: dict[str, float | bool] = {
            "r_type": self.type_factor,
            "r_att": self.attribute_share,
            "w_att": self.attribute_weight,
            "query_match": self.is_query_match,
            "category_match": self.is_category_match,
            "title_score": self.title_score,
            "r_price": self.is_price_match,
            "w_price": self.price_weight,
        }
        if self.option_share is not None and self.option_weight is not None:
            info |= {"r_option": self.option_share, "w_option": self.option_weight}
        return info


def score(
    shop: Shop,
    goal: Goal,
    product: int,
    options: Sequence[tuple[str, str]],
    variant: RewardVariant,
    price: float | None = None,
) -> RewardParts:
    """The reward for buying a product (its place in the shop) with (name, value) pairs chosen.

    `price` replaces the product's own. A purchase is a success when the reward is exactly 1.0.
    """
    bought, wanted = shop.product(product), shop.product(goal.product)
    title_score = _title_score(shop.title_nouns(product), shop.title_nouns(goal.product))
    is_query_match = bought.query == wanted.query
    is_category_match = len(_categories(bought) & _categories(wanted)) >= 2
    factor = _type_factor(is_query_match or is_category_match, title_score)
    num_attributes = sum(_has_attribute(bought, wish) for wish in goal.attributes)
    num_options = _num_option_matches([value for _, value in options], goal, variant)
    fits = (shop.price(product) if price is None else price) <= goal.price_upper
    wanted_options = len(goal.options)
    total = len(goal.attributes) + wanted_options + 1
    return RewardParts(
        reward=(num_attributes + num_options + fits) / total * factor,
        type_factor=factor,
        title_score=title_score,
        is_query_match=is_query_match,
        is_category_match=is_category_match,
        attribute_share=num_attributes / len(goal.attributes),
        attribute_weight=len(goal.attributes) / total,
        option_share=num_options / wanted_options if wanted_options else None,
        option_weight=wanted_options / total if wanted_options else None,
        is_price_match=fits,
        price_weight=1 / total,
    )


def option_matches(value: str, goal: Goal, position: int, variant: RewardVariant) -> bool:
    """Whether a chosen value satisfies option `position` of a goal; group names play no part."""
    return is_similar(color_of(value), wanted_option(goal, position, variant))


def wanted_option(goal: Goal, position: int, variant: RewardVariant) -> str:
    """Option `position` of a goal as a chosen value is compared with it."""
    name, value = goal.options[position]
    if name is None or variant == "fixed":
        return color_of(value)
    pair = (name, value)
    return next((color for color in COLORS if color in pair), str(pair))


@lru_cache(maxsize=65_536)
def color_of(text: str) -> str:
    """The first color word, in the list's order, that a text contains; else the text itself."""
    return next((color for color in COLORS if color in text), text)


def is_similar(one: str, other: str) -> bool:
    """Whether thefuzz 0.22 rates two texts above 85, both processed as it does."""
    return round(token_set_ratio(_processed(one), _processed(other))) > MIN_SIMILARITY


@lru_cache(maxsize=65_536)
def _processed(text: str) -> str:
    """thefuzz's processing: U+0080..U+00FF removed, lower case, other than letters and digits to
    spaces, stripped.
    """
    return default_process(text.translate(_LATIN_1))


def _title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Shared nouns / all nouns of the wanted title, repeated ones counted; 0.2 without nouns."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def _type_factor(is_match: bool, title_score: float) -> float:
    """1 for a match of query, category or title; a title with nothing in common overrides all."""
    if title_score == 0.0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if is_match or title_score > 0.2 else 0.5


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _has_attribute(product: Product, wish: str) -> bool:
    return any(is_similar(attribute, wish) for attribute in product.attributes) or any(
        wish in text.lower()
        for text in (product.title, " ".join(product.bullet_points), product.description)
    )


def _num_option_matches(values: Sequence[str], goal: Goal, variant: RewardVariant) -> int:
    return sum(
        any(option_matches(value, goal, position, variant) for value in values)
        for position in range(len(goal.options))
    )
