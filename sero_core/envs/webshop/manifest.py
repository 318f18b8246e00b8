"""What a prepared shop is made of: its files with their hashes, and how it was made.

The content hash covers every file that the shop reads and nothing else, so the same data has the
same hash whatever machine prepared it. Opening compares the manifest with itself and every file's
size; `verify` reads and hashes every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sero_core.envs.webshop.goals import GoalKind
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.splits import SplitName, SplitRule
from sero_core.envs.webshop.storage import replacing

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class FileEntry(BaseModel):
    model_config = ConfigDict(frozen=True)

    num_bytes: int
    sha256: str


class GoalCounts(BaseModel):
    """Goals of a kind; `solvable` counts those that the own product can win, by reward."""

    model_config = ConfigDict(frozen=True)

    num_goals: int
    num_instructions: int
    solvable: dict[str, int]


class LeakEntry(BaseModel):
    """`splits.Leak` of one kind of goals."""

    model_config = ConfigDict(frozen=True)

    kind: GoalKind
    rule: SplitRule
    part: SplitName
    num_goals: int
    num_goals_known: int
    num_products: int
    num_products_known: int


class Manifest(BaseModel):
    """`manifest.json`. `inputs` and `nouns` say where the data came from."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1]
    inputs: dict[str, FileEntry]
    nouns: str
    draw_seed: int
    shuffle_seed: int
    num_products: int
    goals: dict[GoalKind, GoalCounts]
    leaks: list[LeakEntry]
    files: dict[str, FileEntry]
    content_hash: str


def content_hash(files: Mapping[str, FileEntry]) -> str:
    """SHA-256 in hex over the sorted names and hashes of the files."""
    lines = (f"{name} {entry.num_bytes} {entry.sha256}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def hash_file(path: Path) -> FileEntry:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(num_bytes=path.stat().st_size, sha256=digest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    with replacing(folder / MANIFEST) as file:
        file.write(manifest.model_dump_json(indent=1).encode() + b"\n")


def read_manifest(folder: Path, expected_hash: str | None = None) -> Manifest:
    """The manifest of a shop, compared with the sizes of its files and with `expected_hash`.

    Errors: `CatalogueError` saying what is missing or differs, with got and expected.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise CatalogueError(
            f"{folder} holds no {MANIFEST}: make the shop with `sero data webshop prepare`; a "
            "preparation that was interrupted goes on where it stopped"
        )
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CatalogueError(f"{path} is no manifest of format {FORMAT}: {error}") from None
    own_hash = content_hash(manifest.files)
    if manifest.content_hash != own_hash:
        raise CatalogueError(
            f"{path} was changed: its files hash to {own_hash}, it says {manifest.content_hash}"
        )
    if expected_hash is not None and expected_hash != own_hash:
        raise CatalogueError(
            f"the shop in {folder} holds other data: got content hash {own_hash}, expected "
            f"{expected_hash}"
        )
    for name, entry in manifest.files.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else -1
        if size != entry.num_bytes:
            got = "no such file" if size < 0 else f"{size} bytes"
            raise CatalogueError(f"{folder / name}: got {got}, expected {entry.num_bytes} bytes")
    return manifest


def verify(folder: Path) -> Manifest:
    """`read_manifest` and the hash of every file. Errors: `CatalogueError` naming the file."""
    manifest = read_manifest(folder)
    for name, entry in manifest.files.items():
        found = hash_file(folder / name)
        if found != entry:
            raise CatalogueError(
                f"{folder / name} was changed: got SHA-256 {found.sha256}, expected {entry.sha256}"
            )
    return manifest
