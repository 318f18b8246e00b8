"""The vocabulary of the generated catalogues, read from `data/catalogue_words.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class ProductType:
    """A kind of thing: `domain` is the shop's department, prices are in dollars."""

    domain: str
    path: tuple[str, ...]
    noun: str
    query: str
    groups: tuple[str, ...]
    lowest_price: int
    highest_price: int
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Lists of words and phrases; `options` maps a group to its possible scales of values."""

    brand_starts: tuple[str, ...]
    brand_ends: tuple[str, ...]
    lines: tuple[str, ...]
    adjectives: tuple[str, ...]
    feature_phrases: tuple[str, ...]
    openings: tuple[str, ...]
    human_openings: tuple[str, ...]
    colors: tuple[str, ...]
    color_suffixes: tuple[str, ...]
    options: dict[str, tuple[tuple[str, ...], ...]]
    types: tuple[ProductType, ...]


@cache
def words() -> Words:
    text = files("sero_core.envs.webshop").joinpath("data/catalogue_words.json").read_text("utf-8")
    table = json.loads(text)
    return Words(
        brand_starts=_list(table["brand_starts"]),
        brand_ends=_list(table["brand_ends"]),
        lines=_list(table["lines"]),
        adjectives=_list(table["adjectives"]),
        feature_phrases=_list(table["feature_phrases"]),
        openings=_list(table["openings"]),
        human_openings=_list(table["human_openings"]),
        colors=_list(table["colors"]),
        color_suffixes=_list(table["color_suffixes"]),
        options={name: tuple(map(_list, scales)) for name, scales in table["options"].items()},
        types=tuple(
            _type(domain, line, _list(content["attributes"]))
            for domain, content in table["domains"].items()
            for line in content["types"]
        ),
    )


def _type(domain: str, line: str, attributes: tuple[str, ...]) -> ProductType:
    path, noun, query, groups, prices = (part.strip() for part in line.split("|"))
    lowest, highest = map(int, _list(prices))
    steps = tuple(step.strip() for step in path.split(">"))
    return ProductType(domain, steps, noun, query, _list(groups), lowest, highest, attributes)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";"))
