"""The shop: products, prices, search and goals. Immutable, shared by all environments."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sero_core.envs.webshop import mapped
from sero_core.envs.webshop.bm25 import Bm25Index, build_postings
from sero_core.envs.webshop.goals import (
    DRAW_SEED,
    GOAL_KINDS,
    SHUFFLE_SEED,
    GoalKind,
    Goals,
    draw_goals,
    draw_prices,
    num_combinations,
)
from sero_core.envs.webshop.manifest import read_manifest
from sero_core.envs.webshop.products import (
    CatalogueError,
    Entry,
    Instruction,
    Product,
    index_text,
    read_rows,
)
from sero_core.envs.webshop.records import encode_product, encode_source
from sero_core.envs.webshop.splits import (
    SPLIT_NAMES,
    SPLIT_RULES,
    SplitName,
    SplitRule,
    split_goals,
)
from sero_core.envs.webshop.storage import json_line

NUM_HITS: Final = 50
"""The most products a search returns."""


class Shop:
    """Products in file order (place 0, 1, ..), each with a fixed price; search; goals by kind.

    Every sequence may be held in memory or mapped from disk: the answers are the same.
    `title_nouns` are the nouns of a title that the reward compares, in order, duplicates kept.
    `content_hash` names the data; two shops with one hash answer everything alike.
    """

    def __init__(
        self,
        products: Sequence[Product],
        prices: NDArray[np.float64],
        title_nouns: Sequence[tuple[str, ...]],
        places: Mapping[str, int],
        index: Bm25Index,
        goals: Mapping[GoalKind, Goals],
        splits: Mapping[tuple[SplitRule, GoalKind], NDArray[np.uint8]],
        content_hash: str,
    ) -> None:
        self.content_hash = content_hash
        self._products = products
        self._prices = prices
        self._title_nouns = title_nouns
        self._places = places
        self._index = index
        self._goals = goals
        self._splits = splits

    @classmethod
    def open(cls, folder: Path, content_hash: str | None = None) -> Shop:
        """The shop that `sero data webshop prepare` made, mapped read-only.

        Errors: `CatalogueError` where files are missing or of another size, or the data is not
        the one with this content hash.
        """
        manifest = read_manifest(folder, content_hash)
        return cls._mapped(folder, manifest.content_hash)

    @classmethod
    def open_unfinished(cls, folder: Path) -> Shop:
        """A shop in preparation: no hash, perhaps no flags and no splits yet."""
        return cls._mapped(folder, "")

    @classmethod
    def _mapped(cls, folder: Path, content_hash: str) -> Shop:
        products = mapped.open_products(folder)
        return cls(
            products,
            mapped.open_prices(folder),
            mapped.open_nouns(folder),
            mapped.MappedPlaces(folder),
            mapped.open_index(folder),
            mapped.open_goals(folder, products),
            mapped.open_splits(folder),
            content_hash,
        )

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
        entries = list(read_rows(enumerate(rows), attributes.get, human.get, set()))
        products = tuple(entry.product for entry in entries)
        missing = [product.title for product in products if product.title not in title_nouns]
        if missing:
            raise CatalogueError(f"no nouns are given for {len(missing)} titles, as {missing[0]!r}")
        pricings = [product.pricing for product in products]
        goals: dict[GoalKind, Goals] = {}
        splits: dict[tuple[SplitRule, GoalKind], NDArray[np.uint8]] = {}
        prices: list[float] = []
        for kind in GOAL_KINDS:
            generator = random.Random(draw_seed)
            prices = draw_prices(pricings, generator)
            drawn = draw_goals(_instructions(entries, prices, kind), generator, shuffle_seed)
            goals[kind] = Goals(kind, drawn, products)
            asins = [goal.asin for goal in goals[kind]]
            splits |= {(rule, kind): split_goals(rule, asins) for rule in SPLIT_RULES}
        nouns = [tuple(title_nouns[product.title]) for product in products]
        return cls(
            products,
            np.array(prices, np.float64),
            nouns,
            {product.asin: place for place, product in enumerate(products)},
            Bm25Index(
                build_postings([product.asin for product in products], map(index_text, products))
            ),
            goals,
            splits,
            _hash_in_memory(products, nouns, goals),
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
        return float(self._prices[place])

    def title_nouns(self, place: int) -> tuple[str, ...]:
        return self._title_nouns[place]

    def search(self, query: str) -> tuple[int, ...]:
        """Places of at most 50 products, best first."""
        return self._index.search(query, NUM_HITS)

    def goals(self, kind: GoalKind) -> Goals:
        """All goals of a kind in the engine's order, for good."""
        return self._goals[kind]

    def split(self, rule: SplitRule, part: SplitName, kind: GoalKind) -> NDArray[np.int64]:
        """The indices of the goals in a part, ascending."""
        return np.flatnonzero(self._splits[rule, kind] == SPLIT_NAMES.index(part))


def _hash_in_memory(
    products: Sequence[Product],
    nouns: Sequence[tuple[str, ...]],
    goals: Mapping[GoalKind, Goals],
) -> str:
    """SHA-256 in hex over everything that the shop was made from; not that of the shop on disk."""
    hasher = hashlib.sha256()
    for product, found in zip(products, nouns, strict=True):
        hasher.update(encode_product(product) + json_line(found))
    for kind, of_kind in goals.items():
        hasher.update(json_line(kind))
        hasher.update(b"".join(map(encode_source, of_kind.drawn.sources)))
        hasher.update(of_kind.drawn.source_of.tobytes() + of_kind.drawn.combination_of.tobytes())
    return hasher.hexdigest()


def _instructions(
    entries: Sequence[Entry], prices: Sequence[float], kind: GoalKind
) -> Iterator[tuple[int, float, Instruction, int]]:
    for place, (entry, price) in enumerate(zip(entries, prices, strict=True)):
        if kind == "human":
            for wish in entry.human:
                yield place, price, wish, 1
        elif entry.synthetic is not None:
            yield place, price, entry.synthetic, num_combinations(entry.product)
