"""The files of a prepared shop, mapped read-only: what every process of the machine shares."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sero_core.envs.webshop.bm25 import Bm25Index, Postings
from sero_core.envs.webshop.goals import GOAL_KINDS, DrawnGoals, GoalKind, Goals
from sero_core.envs.webshop.products import Product
from sero_core.envs.webshop.records import decode_nouns, decode_product, decode_source
from sero_core.envs.webshop.splits import SPLIT_RULES, SplitRule
from sero_core.envs.webshop.storage import Decoded, map_array, map_lines, offsets_name

_LINES: Final = ("products.jsonl", "nouns.jsonl", "asins.bin", "terms.bin")
_ARRAYS: Final = (
    "asin_places",
    "asin_ranks",
    "documents",
    "num_with_terms",
    "prices",
    "saturations",
    "starts",
)
_GOAL_ARRAYS: Final = ("source_of", "combination_of", "flags", "split_original", "split_product")
CACHED_RECORDS: Final = 2048
"""How many products, nouns and goal sources a process keeps decoded."""


def file_names() -> list[str]:
    """Every file that a shop reads, its manifest aside."""
    lines = [*_LINES, *(f"{kind}_sources.jsonl" for kind in GOAL_KINDS)]
    arrays = [*_ARRAYS, *(f"{kind}_{name}" for kind in GOAL_KINDS for name in _GOAL_ARRAYS)]
    return sorted(
        [*lines, *map(offsets_name, lines), *(f"{name}.npy" for name in arrays)],
    )


def open_products(folder: Path) -> Sequence[Product]:
    return Decoded(map_lines(folder, "products.jsonl"), decode_product, CACHED_RECORDS)


def open_nouns(folder: Path) -> Sequence[tuple[str, ...]]:
    return Decoded(map_lines(folder, "nouns.jsonl"), decode_nouns, CACHED_RECORDS)


def open_prices(folder: Path) -> NDArray[np.float64]:
    return map_array(folder / "prices.npy")


def open_splits(folder: Path) -> dict[tuple[SplitRule, GoalKind], NDArray[np.uint8]]:
    """The parts of all goals, by rule and kind; those that are there already."""
    found: dict[tuple[SplitRule, GoalKind], NDArray[np.uint8]] = {}
    for rule in SPLIT_RULES:
        for kind in GOAL_KINDS:
            path = folder / f"{kind}_split_{rule}.npy"
            if path.is_file():
                found[rule, kind] = map_array(path)
    return found


def open_index(folder: Path) -> Bm25Index:
    """The index of a shop, mapped."""
    return Bm25Index(
        Postings(
            map_lines(folder, "terms.bin"),
            map_array(folder / "starts.npy"),
            map_array(folder / "documents.npy"),
            map_array(folder / "saturations.npy"),
            map_array(folder / "asin_ranks.npy"),
            int(np.load(folder / "num_with_terms.npy", allow_pickle=False)),
        )
    )


def open_goals(folder: Path, products: Sequence[Product]) -> Mapping[GoalKind, Goals]:
    """The goals of a shop, mapped; with flags where they are there already."""
    goals: dict[GoalKind, Goals] = {}
    for kind in GOAL_KINDS:
        flags = folder / f"{kind}_flags.npy"
        drawn = DrawnGoals(
            Decoded(map_lines(folder, f"{kind}_sources.jsonl"), decode_source, CACHED_RECORDS),
            map_array(folder / f"{kind}_source_of.npy"),
            map_array(folder / f"{kind}_combination_of.npy"),
        )
        goals[kind] = Goals(kind, drawn, products, map_array(flags) if flags.is_file() else None)
    return goals


class MappedPlaces(Mapping[str, int]):
    """Asin to place by binary search in the sorted asins of a shop."""

    def __init__(self, folder: Path) -> None:
        self._asins = map_lines(folder, "asins.bin")
        self._places: NDArray[np.int32] = map_array(folder / "asin_places.npy")

    def __getitem__(self, asin: str) -> int:
        key = asin.encode("utf-8", "surrogatepass")
        rank = bisect_left(self._asins, key)
        if rank == len(self._asins) or self._asins[rank] != key:
            raise KeyError(asin)
        return int(self._places[rank])

    def __len__(self) -> int:
        return len(self._asins)

    def __iter__(self) -> Iterator[str]:
        return (asin.decode("utf-8", "surrogatepass") for asin in self._asins)
