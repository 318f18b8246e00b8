"""The shop: products, prices, search and goals. Immutable, shared by all environments."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sero_core.envs.webshop.bm25 import Bm25Index, build_postings
from sero_core.envs.webshop.goals import (
    DRAW_SEED,
    GOAL_KINDS,
    SHUFFLE_SEED,
    Goal,
    GoalKind,
    Goals,
    draw_goals,
    draw_prices,
    num_combinations,
)
from sero_core.envs.webshop.products import (
    CatalogueError,
    Entry,
    Instruction,
    Product,
    index_text,
    read_entries,
)

NUM_HITS: Final = 50
"""The most products a search returns."""


class Shop:
    """Products in file order (place 0, 1, ..), each with a fixed price; search; goals by kind.

    Every sequence may be held in memory or mapped from disk: the answers are the same.
    `title_nouns` are the nouns of a title that the reward compares, in order, duplicates kept.
    """

    def __init__(
        self,
        products: Sequence[Product],
        prices: Sequence[float],
        title_nouns: Sequence[tuple[str, ...]],
        places: Mapping[str, int],
        index: Bm25Index,
        goals: Mapping[GoalKind, Goals],
    ) -> None:
        self._products = products
        self._prices = prices
        self._title_nouns = title_nouns
        self._places = places
        self._index = index
        self._goals = goals

    @classmethod
    def from_raw(
        cls,
        rows: Iterable[object],
        attributes: Mapping[str, object],
        human: Mapping[str, object],
        title_nouns: Mapping[str, Sequence[str]],
        *,
        draw_seed: int = DRAW_SEED,
        shuffle_seed: int = SHUFFLE_SEED,
    ) -> Shop:
        """A shop in memory from the values of the original JSON files and the nouns per title.

        Errors: `CatalogueError` naming the row or product, or a title without nouns.
        """
        entries = list(read_entries(rows, attributes, human))
        products = tuple(entry.product for entry in entries)
        missing = [product.title for product in products if product.title not in title_nouns]
        if missing:
            raise CatalogueError(f"no nouns are given for {len(missing)} titles, as {missing[0]!r}")
        pricings = [product.pricing for product in products]
        goals: dict[GoalKind, Goals] = {}
        prices: list[float] = []
        for kind in GOAL_KINDS:
            generator = random.Random(draw_seed)
            prices = draw_prices(pricings, generator)
            drawn = draw_goals(_instructions(entries, prices, kind), generator, shuffle_seed)
            goals[kind] = Goals(kind, drawn, products)
        return cls(
            products,
            prices,
            [tuple(title_nouns[product.title]) for product in products],
            {product.asin: place for place, product in enumerate(products)},
            Bm25Index(
                build_postings([product.asin for product in products], map(index_text, products))
            ),
            goals,
        )

    @property
    def num_products(self) -> int:
        return len(self._products)

    def product(self, place: int) -> Product:
        return self._products[place]

    def index_of(self, asin: str) -> int:
        """The place of an asin, spelled as in the catalogue. Raises KeyError."""
        return self._places[asin]

    def price(self, place: int) -> float:
        """The price the reward compares (drawn once within a range)."""
        return self._prices[place]

    def title_nouns(self, place: int) -> tuple[str, ...]:
        return self._title_nouns[place]

    def search(self, query: str) -> tuple[int, ...]:
        """Places of at most 50 products, best first."""
        return self._index.search(query, NUM_HITS)

    def goals(self, kind: GoalKind) -> Sequence[Goal]:
        """All goals of a kind in the engine's order, for good."""
        return self._goals[kind]


def _instructions(
    entries: Sequence[Entry], prices: Sequence[float], kind: GoalKind
) -> Iterator[tuple[int, float, Instruction, int]]:
    for place, (entry, price) in enumerate(zip(entries, prices, strict=True)):
        if kind == "human":
            for wish in entry.human:
                yield place, price, wish, 1
        elif entry.synthetic is not None:
            yield place, price, entry.synthetic, num_combinations(entry.product)
