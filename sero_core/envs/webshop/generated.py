"""A generated shop, ready to play: no download, the same data on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sero_core.envs.webshop.catalogue import (
    ATTRIBUTES_FILE,
    HUMAN_FILE,
    PRODUCTS_FILE,
    generate_catalogue,
)
from sero_core.envs.webshop.manifest import Manifest
from sero_core.envs.webshop.nouns import choose_nouns
from sero_core.envs.webshop.prepare import Progress, Sources, prepare

RAW_FOLDER: Final = "raw"


def _silent(step: str, share: float) -> None:
    """Nobody waits for a generated shop long enough to want a bar."""


def make_shop(folder: Path, num_products: int, seed: int, progress: Progress = _silent) -> Manifest:
    """Generate a catalogue in the original's file format into `<folder>/raw` and prepare it.

    Titles get their nouns from the built-in tagger, so that the content hash does not depend on
    what is installed. Errors: `CatalogueError` where the folder holds a shop already.
    """
    raw = folder / RAW_FOLDER
    generate_catalogue(raw, num_products, seed)
    tag, nouns = choose_nouns(None, "builtin")
    sources = Sources(
        products=raw / PRODUCTS_FILE,
        attributes=raw / ATTRIBUTES_FILE,
        human=raw / HUMAN_FILE,
        tag=tag,
        nouns=nouns,
    )
    return prepare(sources, folder, progress)
