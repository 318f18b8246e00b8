"""First half of the preparation: rows of the original files, a chunk at a time.

A chunk is a folder that appears complete or not at all; after a kill the finished ones are kept and
their rows are only skimmed. Memory holds one chunk and the attribute file, never the catalogue.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np

from sero_core.envs.webshop.bm25 import count_terms
from sero_core.envs.webshop.goals import num_combinations
from sero_core.envs.webshop.products import (
    CatalogueError,
    Entry,
    Instruction,
    index_text,
    read_rows,
)
from sero_core.envs.webshop.records import encode_product
from sero_core.envs.webshop.storage import Array, json_line

ROWS_PER_CHUNK: Final = 10_000
NounTagger = Callable[[Sequence[str]], list[list[str]]]
"""The nouns of each title, lower-cased, in order, duplicates kept."""


@dataclass(frozen=True, slots=True)
class Wish:
    """An instruction for the product at a place, and how many goals it makes."""

    place: int
    instruction: Instruction
    num_goals: int


class Chunk:
    """A finished chunk on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, name: str) -> Iterator[bytes]:
        with (self.folder / name).open("rb") as file:
            yield from file

    def array(self, name: str) -> Array:
        return np.load(self.folder / f"{name}.npy", allow_pickle=False)

    @property
    def asins(self) -> list[str]:
        return json.loads((self.folder / "asins.json").read_text("utf-8"))

    @property
    def terms(self) -> list[bytes]:
        return (self.folder / "terms.txt").read_bytes().split(b"\n")[:-1]

    def wishes(self, kind: str) -> Iterator[Wish]:
        """Places count within the chunk."""
        for line in self.lines("wishes.jsonl"):
            of_kind, place, text, attributes, options, num_goals = json.loads(line)
            if of_kind == kind:
                chosen = None if options is None else tuple(options)
                yield Wish(place, Instruction(text, tuple(attributes), chosen), num_goals)


def build_chunks(
    rows: Iterable[object],
    attributes: Mapping[str, bytes],
    human: Mapping[str, bytes],
    tag: NounTagger,
    work: Path,
    rows_per_chunk: int = ROWS_PER_CHUNK,
) -> list[Chunk]:
    """All chunks of a catalogue below `work`; those that are there already are not made again.

    `attributes` and `human` hold JSON by asin. Errors: `CatalogueError` naming the row.
    """
    remaining = enumerate(rows)
    seen: set[str] = set()
    chunks: list[Chunk] = []
    while (first := next(remaining, None)) is not None:
        part = chain([first], islice(remaining, rows_per_chunk - 1))
        chunk = Chunk(work / f"chunk-{len(chunks):05d}")
        if chunk.folder.is_dir():
            deque(part, maxlen=0)
        else:
            entries = list(read_rows(part, _by_asin(attributes), _by_asin(human), seen))
            _write_chunk(chunk.folder, entries, tag)
        seen.update(chunk.asins)
        chunks.append(chunk)
    if not seen:
        raise CatalogueError("the catalogue holds no product")
    return chunks


def _by_asin(values: Mapping[str, bytes]) -> Callable[[str], object | None]:
    def find(asin: str) -> object | None:
        text = values.get(asin)
        return None if text is None else json.loads(text)

    return find


def _write_chunk(folder: Path, entries: Sequence[Entry], tag: NounTagger) -> None:
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    products = [entry.product for entry in entries]
    counts = count_terms(map(index_text, products))
    pricing = np.array([(p.pricing[0], p.pricing[-1]) for p in products], np.float64)
    arrays = {
        "starts": counts.starts,
        "documents": counts.documents,
        "counts": counts.counts,
        "lengths": counts.lengths,
        "pricing": pricing.reshape(-1, 2),
        "has_range": np.array([len(p.pricing) > 1 for p in products], np.bool_),
    }
    texts = {
        "asins.json": [json_line([product.asin for product in products])],
        "terms.txt": [term + b"\n" for term in counts.terms],
        "products.jsonl": [encode_product(product) for product in products],
        "nouns.jsonl": [json_line(nouns) for nouns in tag([p.title for p in products])],
        "wishes.jsonl": [json_line(line) for line in _wish_lines(entries)],
    }
    for name, lines in texts.items():
        (temporary / name).write_bytes(b"".join(lines))
    for name, array in arrays.items():
        np.save(temporary / f"{name}.npy", array, allow_pickle=False)
    for path in temporary.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    temporary.rename(folder)


def _wish_lines(entries: Sequence[Entry]) -> Iterator[tuple[object, ...]]:
    for place, entry in enumerate(entries):
        if entry.synthetic is not None:
            wish = entry.synthetic
            number = num_combinations(entry.product)
            yield "synthetic", place, wish.text, wish.attributes, None, number
        for wish in entry.human:
            yield "human", place, wish.text, wish.attributes, wish.options, 1
