"""Second half of the preparation: chunks become the files of a shop.

A shop's folder holds `products.jsonl`, `nouns.jsonl`, `<kind>_sources.jsonl` with offset tables,
the terms of the index and arrays. Arrays are written a chunk at a time through a map.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from sero_core.envs.webshop.bm25 import asin_ranks, inverse_norms, saturations
from sero_core.envs.webshop.chunks import Chunk
from sero_core.envs.webshop.goals import GOAL_KINDS, GoalKind, draw_goals, draw_prices
from sero_core.envs.webshop.products import Instruction
from sero_core.envs.webshop.records import encode_source
from sero_core.envs.webshop.storage import Array, write_array, write_lines

LINES: Final = ("products.jsonl", "nouns.jsonl")


def write_catalogue(chunks: Sequence[Chunk], out: Path) -> None:
    """Products, nouns and asins."""
    for name in LINES:
        write_lines(out, name, (line for chunk in chunks for line in chunk.lines(name)))
    asins = [asin for chunk in chunks for asin in chunk.asins]
    ranks = asin_ranks(asins)
    by_rank = np.argsort(ranks, kind="stable").astype(np.int32)
    write_array(out / "asin_ranks.npy", ranks)
    write_array(out / "asin_places.npy", by_rank)
    write_lines(
        out, "asins.bin", (asins[place].encode("utf-8", "surrogatepass") for place in by_rank)
    )


def write_index(chunks: Sequence[Chunk], out: Path) -> None:
    """The inverted index of all chunks together."""
    terms = sorted({term for chunk in chunks for term in chunk.terms})
    write_lines(out, "terms.bin", terms)
    numbers = {term: number for number, term in enumerate(terms)}
    owners = [np.array([numbers[term] for term in chunk.terms], np.int64) for chunk in chunks]
    frequencies = np.zeros(len(terms), np.int64)
    for chunk, owner in zip(chunks, owners, strict=True):
        frequencies[owner] += np.diff(chunk.array("starts"))
    starts = np.concatenate(([0], np.cumsum(frequencies)))
    lengths = np.concatenate([chunk.array("lengths") for chunk in chunks])
    norms = inverse_norms(lengths)
    write_array(out / "starts.npy", starts)
    write_array(out / "num_with_terms.npy", np.array(np.count_nonzero(lengths)))
    total = int(starts[-1])
    ends = starts[:-1].copy()
    first_place = 0
    with (
        _mapped(out / "documents.npy", np.dtype(np.int32), total) as documents,
        _mapped(out / "saturations.npy", np.dtype(np.float32), total) as saturation,
    ):
        for chunk, owner in zip(chunks, owners, strict=True):
            local = chunk.array("starts")
            sizes = np.diff(local)
            target = np.arange(local[-1]) + np.repeat(ends[owner] - local[:-1], sizes)
            places = chunk.array("documents") + np.int32(first_place)
            documents[target] = places
            saturation[target] = saturations(chunk.array("counts"), norms[places])
            ends[owner] += sizes
            first_place += len(chunk.array("lengths"))


def write_goals(chunks: Sequence[Chunk], out: Path, draw_seed: int, shuffle_seed: int) -> None:
    """Prices and the goals of both kinds, from the named seeds."""
    pricings = [pricing for chunk in chunks for pricing in _pricings(chunk)]
    prices: list[float] = []
    for kind in GOAL_KINDS:
        generator = random.Random(draw_seed)
        prices = draw_prices(pricings, generator)
        drawn = draw_goals(_instructions(chunks, prices, kind), generator, shuffle_seed)
        write_lines(out, f"{kind}_sources.jsonl", map(encode_source, drawn.sources))
        write_array(out / f"{kind}_source_of.npy", drawn.source_of)
        write_array(out / f"{kind}_combination_of.npy", drawn.combination_of)
    write_array(out / "prices.npy", np.array(prices, np.float64))


def _pricings(chunk: Chunk) -> Iterator[tuple[float, ...]]:
    pairs: list[list[float]] = chunk.array("pricing").tolist()
    for (low, high), has_range in zip(pairs, chunk.array("has_range").tolist(), strict=True):
        yield (low, high) if has_range else (low,)


def _instructions(
    chunks: Sequence[Chunk], prices: Sequence[float], kind: GoalKind
) -> Iterator[tuple[int, float, Instruction, int]]:
    first_place = 0
    for chunk in chunks:
        for wish in chunk.wishes(kind):
            place = first_place + wish.place
            yield place, prices[place], wish.instruction, wish.num_goals
        first_place += len(chunk.asins)


@contextmanager
def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> Generator[Array]:
    """An array on disk to be filled; it appears under its name when it is complete."""
    temporary = path.with_name(f".{path.name}.tmp")
    array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=(length,))
    yield array.view(np.ndarray)
    array.flush()
    temporary.replace(path)
