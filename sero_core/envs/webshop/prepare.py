"""`sero data webshop prepare`: WebShop's original files become a shop that any process can open.

The steps leave their results on disk one after the other, each complete or not at all: chunks of
products, the index, prices and goals, solvable flags, splits, and last the manifest, without which
the folder is no shop. After a kill the same command goes on with the first step that is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from sero_core.envs.webshop.chunks import ROWS_PER_CHUNK, Chunk, NounTagger, build_chunks
from sero_core.envs.webshop.goals import DRAW_SEED, GOAL_KINDS, SHUFFLE_SEED, Goal, GoalKind
from sero_core.envs.webshop.manifest import (
    FORMAT,
    MANIFEST,
    GoalCounts,
    LeakEntry,
    Manifest,
    content_hash,
    hash_file,
    write_manifest,
)
from sero_core.envs.webshop.mapped import file_names
from sero_core.envs.webshop.merge import write_catalogue, write_goals, write_index
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.purchase import winning_choice
from sero_core.envs.webshop.reward import REWARD_VARIANTS
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.splits import SPLIT_RULES, leaks, split_goals
from sero_core.envs.webshop.storage import json_line, replacing, write_array
from sero_core.envs.webshop.streaming import stream_array, stream_object

WORK: Final = ".work"
GOALS_PER_PART: Final = 20_000
Progress = Callable[[str, float], None]
"""Told the step and how much of it is done, from 0 to 1."""


class Seeds(NamedTuple):
    """`draw`: prices and upper prices. `shuffle`: the order of the goals."""

    draw: int = DRAW_SEED
    shuffle: int = SHUFFLE_SEED


@dataclass(frozen=True, slots=True)
class Sources:
    """The original files. `nouns` names where the nouns come from, as the manifest records it."""

    products: Path
    attributes: Path
    human: Path | None
    tag: NounTagger
    nouns: str
    num_rows: int | None = None
    """How many rows of the products file are read; None means all."""

    @property
    def paths(self) -> list[Path]:
        return [self.products, self.attributes, *([] if self.human is None else [self.human])]


def prepare(
    sources: Sources,
    out: Path,
    progress: Progress,
    seeds: Seeds | None = None,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
) -> Manifest:
    """Make the shop in `out`, going on where an earlier try on the same files stopped.

    Errors: `CatalogueError` for unreadable files, and where `out` holds a finished shop.
    """
    seeds = seeds or Seeds()
    if (out / MANIFEST).is_file():
        raise CatalogueError(f"{out} holds a shop already; choose another folder or remove it")
    steps = _Steps(out / WORK, [_describe(sources), *seeds, rows_per_chunk])
    steps.once("chunks", lambda: _write_chunks(sources, steps.work, progress, rows_per_chunk))
    chunks = [Chunk(folder) for folder in sorted(steps.work.glob("chunk-*"))]
    progress("index", 0.0)
    steps.once("catalogue", lambda: write_catalogue(chunks, out))
    steps.once("index", lambda: write_index(chunks, out))
    progress("goals", 0.0)
    steps.once("goals", lambda: write_goals(chunks, out, *seeds))
    shop = Shop.open_unfinished(out)
    for kind in GOAL_KINDS:
        _write_flags(shop, kind, out, steps.work, progress)
    found = [leak for kind in GOAL_KINDS for leak in _write_splits(shop, kind, out)]
    progress("hashes", 0.0)
    names = file_names()
    files = {name: hash_file(out / name) for name in names}
    manifest = Manifest(
        format=FORMAT,
        inputs={path.name: hash_file(path) for path in sources.paths},
        nouns=sources.nouns,
        draw_seed=seeds.draw,
        shuffle_seed=seeds.shuffle,
        num_products=shop.num_products,
        goals={kind: _count(out, kind) for kind in GOAL_KINDS},
        leaks=found,
        files=files,
        content_hash=content_hash(files),
    )
    write_manifest(out, manifest)
    shutil.rmtree(steps.work)
    return manifest


class _Steps:
    """Which steps are done, as files in the work folder. Other sources or seeds than last time
    start anew.
    """

    def __init__(self, work: Path, key: list[object]) -> None:
        self.work = work
        wanted = json_line(key)
        mark = work / "sources.json"
        if not mark.is_file() or mark.read_bytes() != wanted:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            with replacing(mark) as file:
                file.write(wanted)

    def once(self, name: str, step: Callable[[], None]) -> None:
        mark = self.work / f"done-{name}"
        if not mark.is_file():
            step()
            with replacing(mark) as file:
                file.write(b"")


def _describe(sources: Sources) -> list[object]:
    """Tells files apart without reading them: a preparation that goes on must read the same."""
    stats = [(str(path.resolve()), path.stat()) for path in sources.paths]
    files = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
    return [files, sources.nouns, sources.num_rows]


def _write_chunks(sources: Sources, work: Path, progress: Progress, rows_per_chunk: int) -> None:
    attributes = _texts(sources.attributes, "attributes", progress)
    human = {} if sources.human is None else _texts(sources.human, "human", progress)
    rows = islice(
        stream_array(sources.products, _share(sources.products, "products", progress)),
        sources.num_rows,
    )
    build_chunks(rows, attributes, human, sources.tag, work, rows_per_chunk)


def _texts(path: Path, step: str, progress: Progress) -> dict[str, bytes]:
    """The members of an object as JSON texts: a fifth of the memory that the values would take.
    A repeated key has the later value, as in `json.load`.
    """
    members = stream_object(path, _share(path, step, progress))
    return {asin: json_line(value) for asin, value in members}


def _share(path: Path, step: str, progress: Progress) -> Callable[[int], None]:
    size = max(1, path.stat().st_size)
    return lambda num_bytes: progress(step, num_bytes / size)


def _write_flags(shop: Shop, kind: GoalKind, out: Path, work: Path, progress: Progress) -> None:
    """One byte per goal: bit 0 and 1 say whether the own product wins under each reward.

    Goals of one instruction are done together: what they share is worked out once.
    """
    goals = shop.goals(kind)
    order = np.argsort(goals.drawn.source_of, kind="stable")
    flags = np.zeros(len(goals), np.uint8)
    for start in range(0, len(goals), GOALS_PER_PART):
        progress(f"{kind} goals", start / len(goals))
        path = work / f"flags-{kind}-{start}.npy"
        part = order[start : start + GOALS_PER_PART]
        if not path.is_file():
            found = [_flags(shop, goals[place]) for place in part.tolist()]
            write_array(path, np.array(found, np.uint8))
        flags[part] = np.load(path, allow_pickle=False)
    write_array(out / f"{kind}_flags.npy", flags)


def _flags(shop: Shop, goal: Goal) -> int:
    return sum(
        1 << bit
        for bit, variant in enumerate(REWARD_VARIANTS)
        if winning_choice(shop, goal, variant) is not None
    )


def _write_splits(shop: Shop, kind: GoalKind, out: Path) -> list[LeakEntry]:
    drawn = shop.goals(kind).drawn
    of_source = [source.product for source in drawn.sources]
    products = np.array(of_source, np.int32)[drawn.source_of]
    asins = np.array([shop.product(place).asin for place in of_source], object)[drawn.source_of]
    found: list[LeakEntry] = []
    for rule in SPLIT_RULES:
        parts = split_goals(rule, asins.tolist())
        write_array(out / f"{kind}_split_{rule}.npy", parts)
        found += [LeakEntry(kind=kind, **asdict(leak)) for leak in leaks(rule, parts, products)]
    return found


def _count(out: Path, kind: GoalKind) -> GoalCounts:
    flags = np.load(out / f"{kind}_flags.npy", allow_pickle=False)
    sources = np.load(out / f"{kind}_source_of.npy", allow_pickle=False)
    return GoalCounts(
        num_goals=len(flags),
        num_instructions=len(np.unique(sources)),
        solvable={
            variant: int(np.count_nonzero(flags & (1 << bit)))
            for bit, variant in enumerate(REWARD_VARIANTS)
        },
    )
