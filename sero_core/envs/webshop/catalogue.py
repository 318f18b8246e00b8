"""Generated catalogues in WebShop's own file format, so that nothing has to be downloaded.

Product i of a seed is the same whatever the number of products, so a small catalogue is the start
of a large one; the same seed gives the same bytes. Brands and texts are made up.

A product has a type (its noun, query and category), attributes of which the title and the bullet
points name some, option groups with values, a price. About two in five have a synthetic
instruction, one in ten human-like ones, which want attributes and options that the product has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from sero_core.envs.webshop.catalogue_words import ProductType, words
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.storage import replacing
from sero_core.seeds import derived_random

PRODUCTS_FILE: Final = "items_shuffle.json"
ATTRIBUTES_FILE: Final = "items_ins_v2.json"
HUMAN_FILE: Final = "items_human_ins.json"
"""The names of the original files."""

SYNTHETIC_SHARE: Final = 0.42
HUMAN_SHARE: Final = 0.1
NO_OPTIONS_SHARE: Final = 0.35
NO_PRICE_SHARE: Final = 0.05
RANGE_SHARE: Final = 0.08
ODD_COLOR_SHARE: Final = 0.03
"""Products whose colors carry a code, as "red-b12": the reward `original` misjudges those."""
MAX_VALUES: Final = 6
_ASIN_LETTERS: Final = "0123456789ABCDEFGHJKLMNPQRSTUVWX"
_ASIN_BITS: Final = 40
_ASIN_FACTOR: Final = 0x9E3779B97F4A7C15 % 2**_ASIN_BITS
"""Odd, so that place -> place * factor is one-to-one modulo 2^40."""


@dataclass(frozen=True, slots=True)
class GeneratedProduct:
    """A row of the products file with its entries of the other two."""

    asin: str
    row: dict[str, object]
    attributes: dict[str, object]
    human: list[dict[str, object]]


def generate_catalogue(folder: Path, num_products: int, seed: int) -> None:
    """Write the three files. Errors: `CatalogueError` where one of them is there already."""
    names = (PRODUCTS_FILE, ATTRIBUTES_FILE, HUMAN_FILE)
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise CatalogueError(f"{folder} holds {there[0]} already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        replacing(folder / PRODUCTS_FILE) as rows,
        replacing(folder / ATTRIBUTES_FILE) as attributes,
        replacing(folder / HUMAN_FILE) as human,
    ):
        for place, product in enumerate(generate_products(num_products, seed)):
            separator = b",\n" if place else b""
            rows.write((separator or b"[\n") + _json(product.row))
            member = b"%s:%s" % (_json(product.asin), _json(product.attributes))
            attributes.write((separator or b"{\n") + member)
            if product.human:
                separator = b",\n" if human.tell() else b"{\n"
                human.write(separator + b"%s:%s" % (_json(product.asin), _json(product.human)))
        rows.write(b"\n]\n" if num_products else b"[]\n")
        attributes.write(b"\n}\n" if num_products else b"{}\n")
        human.write(b"\n}\n" if human.tell() else b"{}\n")


def generate_products(num_products: int, seed: int) -> Iterator[GeneratedProduct]:
    """The products of a seed in file order."""
    for place in range(num_products):
        yield _product(place, seed)


def _product(place: int, seed: int) -> GeneratedProduct:
    draw = derived_random(seed, "webshop product", place)
    of_type = draw.choice(words().types)
    asin = _asin(place, seed)
    attributes = draw.sample(of_type.attributes, draw.randint(3, 6))
    options = _options(of_type, draw)
    title = _title(of_type, attributes, draw)
    row: dict[str, object] = {
        "asin": asin,
        "name": title,
        "full_description": _description(of_type, attributes, draw),
        "small_description": _bullet_points(of_type, attributes, draw),
        "pricing": _pricing(of_type, draw),
        "images": [f"https://images.invalid/{asin}.jpg"],
        "product_category": " › ".join(of_type.path),
        "category": of_type.domain,
        "query": of_type.query,
        "page": draw.randint(1, 40),
        "average_rating": draw.choice(("", round(draw.uniform(2.5, 5), 1))),
        "brand": title.split()[0],
        "customization_options": {
            name: [{"value": _capitalized(value), "image": None} for value in values]
            for name, values in options.items()
        }
        or "",
    }
    known: dict[str, object] = {"attributes": attributes}
    if draw.random() < SYNTHETIC_SHARE:
        wanted = draw.sample(attributes, draw.randint(1, 3))
        known["instruction"] = _synthetic(of_type, wanted, draw)
        known["instruction_attributes"] = wanted
    human: list[dict[str, object]] = []
    if draw.random() < HUMAN_SHARE:
        number = draw.randint(1, 2)
        human = [_human(asin, of_type, attributes, options, draw) for _ in range(number)]
    return GeneratedProduct(asin, row, known, human)


def _asin(place: int, seed: int) -> str:
    """Ten characters, different for every place."""
    number = ((place + 1) * _ASIN_FACTOR + derived_random(seed, "asin").getrandbits(40)) % 2**40
    letters = [_ASIN_LETTERS[number >> shift & 31] for shift in range(35, -1, -5)]
    return "B0" + "".join(letters)


def _title(of_type: ProductType, attributes: Sequence[str], draw: Random) -> str:
    vocabulary = words()
    brand = draw.choice(vocabulary.brand_starts) + draw.choice(vocabulary.brand_ends)
    before = [draw.choice(vocabulary.lines), draw.choice(vocabulary.adjectives)]
    draw.shuffle(before)
    parts = [" ".join([brand, *before, of_type.noun])]
    parts += draw.sample(attributes, draw.randint(1, 2))
    if draw.random() < 0.5:
        parts.append(draw.choice(vocabulary.feature_phrases))
    if draw.random() < 0.3:
        parts.append(f"model {draw.choice('ABCDEFGHKLMNPRST')}{draw.randint(10, 999)}")
    return ", ".join(map(_capitalized, parts))


def _options(of_type: ProductType, draw: Random) -> dict[str, list[str]]:
    """Values per group, in the order of their scale."""
    if draw.random() < NO_OPTIONS_SHARE:
        return {}
    groups = sorted(draw.sample(of_type.groups, draw.randint(1, len(of_type.groups))))
    options: dict[str, list[str]] = {}
    for group in groups:
        scale = words().colors if group == "color" else draw.choice(words().options[group])
        places = draw.sample(range(len(scale)), min(len(scale), draw.randint(1, MAX_VALUES)))
        options[group] = [scale[place] for place in sorted(places)]
    if "color" in options:
        options["color"] = _varied_colors(options["color"], draw)
    return options


def _varied_colors(colors: list[str], draw: Random) -> list[str]:
    chance = draw.random()
    if chance < ODD_COLOR_SHARE:
        suffix = draw.choice(words().color_suffixes)
        return [f"{color}{suffix}" for color in colors]
    if chance < 2 * ODD_COLOR_SHARE:
        return [f"{color}/{draw.choice(('white', 'black'))}" for color in colors]
    return colors


def _pricing(of_type: ProductType, draw: Random) -> str:
    """A price text as the original files have them; most prices are at the lower end."""
    if draw.random() < NO_PRICE_SHARE:
        return ""
    span = of_type.highest_price / of_type.lowest_price
    dollars = int(of_type.lowest_price * span ** draw.random())
    cents = draw.choice((99, 95, 49, 0, draw.randint(1, 98)))
    if draw.random() < RANGE_SHARE:
        return f"${dollars}.{cents:02d}${dollars + draw.randint(1, 1 + dollars // 2)}.{cents:02d}"
    return f"${dollars}.{cents:02d}"


def _description(of_type: ProductType, attributes: Sequence[str], draw: Random) -> str:
    adjective, other = draw.sample(words().adjectives, 2)
    this, verb = _this(of_type.noun)
    sentences = [
        f"{_capitalized(this)} {adjective} {of_type.noun} {verb} for friends of {other} things.",
        f"With {attributes[0]} and {attributes[-1]}.",
        f"Our {of_type.domain} team checks everything by hand.",
        f"Choose from our {of_type.query}; return within {draw.choice((14, 30, 60))} days.",
    ]
    return " ".join(draw.sample(sentences, draw.randint(0, len(sentences))))


def _bullet_points(of_type: ProductType, attributes: Sequence[str], draw: Random) -> list[str]:
    this, verb = _this(of_type.noun)
    forms = (
        f"{{Name}}: {this} {of_type.noun} {verb} known for {{name}}.",
        f"{{Name}} - chosen so that your {of_type.noun} will last.",
        f"Our {of_type.noun} with {{name}}, {draw.choice(words().adjectives)} as you like it.",
    )
    return [
        draw.choice(forms).format(Name=_capitalized(name), name=name)
        for name in attributes[: draw.randint(1, len(attributes))]
    ]


def _synthetic(of_type: ProductType, wanted: Sequence[str], draw: Random) -> str:
    forms = (
        "{opening} {wanted} {query}",
        "{opening} {query} with {wanted}",
        "{opening} {one} with {wanted}",
        "{opening} {query} that are {wanted}",
    )
    return draw.choice(forms).format(
        opening=draw.choice(words().openings),
        wanted=", ".join(wanted),
        query=of_type.query,
        one=_one(of_type.noun),
    )


def _human(
    asin: str,
    of_type: ProductType,
    attributes: Sequence[str],
    options: dict[str, list[str]],
    draw: Random,
) -> dict[str, object]:
    wanted = draw.sample(attributes, draw.randint(1, 2))
    chosen = {name: draw.choice(values).replace("/", " | ") for name, values in options.items()}
    told = [f"{name} {value}" if "size" in name else value for name, value in chosen.items()]
    forms = (
        "{opening} {one} that must have {wanted}{told}.",
        "{opening} {wanted} {query}{told}.",
        "{opening} {one}, {wanted}{told}, please.",
    )
    text = draw.choice(forms).format(
        opening=draw.choice(words().human_openings),
        one=_one(of_type.noun),
        query=of_type.query,
        wanted=" and ".join(wanted),
        told=", in " + " and ".join(told) if told else "",
    )
    return {
        "asin": asin,
        "instruction": text,
        "attributes": list(attributes),
        "options": [f"{name}: {value}" for name, value in chosen.items()],
        "instruction_attributes": wanted,
        "instruction_options": list(chosen.values()),
    }


def _one(noun: str) -> str:
    """The noun with its article; plural nouns have none."""
    if _is_plural(noun):
        return noun
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def _this(noun: str) -> tuple[str, str]:
    return ("these", "are") if _is_plural(noun) else ("this", "is")


def _is_plural(noun: str) -> bool:
    return noun.endswith("s") and not noun.endswith("ss")


def _capitalized(text: str) -> str:
    """Every word with a capital, but words such as 2t or 16gb as they are."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
