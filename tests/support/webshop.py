"""The golden catalogue: what the original WebShop engine says on it (tests/golden/webshop)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from sero_core.envs.webshop.prepare import Sources
from sero_core.envs.webshop.shop import Shop

GOLDEN = Path(__file__).parents[1] / "golden" / "webshop"


def golden_json(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def golden_rows() -> list[Any]:
    return json.loads((GOLDEN / "items_shuffle.json").read_text(encoding="utf-8"))


def golden_lines(name: str) -> list[Any]:
    """A `.jsonl.gz` file. Strings in it hold Unicode line breaks: split on \\n only."""
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


@cache
def golden_shop() -> Shop:
    """The golden catalogue in memory, with spaCy's nouns as given."""
    return Shop.from_raw(
        golden_rows(),
        golden_json("items_ins_v2.json"),
        golden_json("items_human_ins.json"),
        golden_json("title_nouns.json")["titles"],
    )


def golden_sources() -> Sources:
    """The golden files as `sero data webshop prepare` takes them."""
    nouns = golden_json("title_nouns.json")["titles"]
    return Sources(
        GOLDEN / "items_shuffle.json",
        GOLDEN / "items_ins_v2.json",
        GOLDEN / "items_human_ins.json",
        lambda titles: [nouns[title] for title in titles],
        "title_nouns.json",
    )


def quiet(step: str, share: float) -> None:
    """A progress display that shows nothing."""
