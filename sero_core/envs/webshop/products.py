"""Rows of WebShop's catalogue files as products, read exactly as the original engine reads them.

Rules of princeton-nlp/WebShop 64fa2a5, `engine.load_products`, oddities included: which rows are
skipped, what a price text means, how option values are spelled. Unknown keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, cast

from sero_core.types import SeroError

MAX_ASIN_LENGTH: Final = 10
NO_ATTRIBUTE: Final = "DUMMY_ATTR"
"""What a product without attributes gets."""
UNKNOWN_PRICE: Final = 100.0


class CatalogueError(SeroError, ValueError):
    """A catalogue file cannot be read as it is; the message names the row or the product."""


@dataclass(frozen=True, slots=True)
class Product:
    """What the shop knows of one product. `options` keeps the file's order of groups and values.

    `pricing` holds one price, or the two ends of a range (which may descend); `price_tag` is what
    the pages show. Option names and values, `query` are lower-cased as the original does.
    """

    asin: str
    title: str
    description: str
    bullet_points: tuple[str, ...]
    pricing: tuple[float, ...]
    price_tag: str
    options: tuple[tuple[str, tuple[str, ...]], ...]
    attributes: tuple[str, ...]
    query: str
    product_category: str
    category: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """What somebody wants: the text without its price part. `options` is None where every
    combination of the product's options makes a goal of its own (synthetic instructions).
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A product with what the other two files say about it."""

    product: Product
    synthetic: Instruction | None
    human: tuple[Instruction, ...]


Lookup = Callable[[str], object | None]
"""What a file says of an asin, None where it does not hold it."""


def read_rows(
    rows: Iterable[tuple[int, object]], attributes: Lookup, human: Lookup, seen: set[str]
) -> Iterator[Entry]:
    """The products of numbered rows, skipping what the original skips: asins "nan" or longer than
    10 characters, and asins in `seen`, which grows.

    Errors: `CatalogueError` naming the row for a row the original would crash on.
    """
    for number, row in rows:
        fields = _Fields(row, f"row {number}")
        asin = fields.text("asin")
        if asin == "nan" or len(asin) > MAX_ASIN_LENGTH or asin in seen:
            continue
        seen.add(asin)
        yield read_entry(row, attributes(asin), human(asin))


def read_entry(row: object, attributes: object | None, human: object | None) -> Entry:
    """One row with its values of the other files (None where they do not hold the asin).

    Errors: `CatalogueError` naming the product and the key.
    """
    fields = _Fields(row, "row")
    where = f"product {fields.text('asin')}"
    fields = _Fields(row, where)
    known = None if attributes is None else _Fields(attributes, f"{where}, attributes")
    wishes = () if human is None else _items(human, f"{where}: human instructions")
    return Entry(
        _product(fields, known),
        None if known is None else _synthetic(known),
        tuple(
            _human(wish)
            for wish in (_Fields(entry, f"{where}, human instruction") for entry in wishes)
            if wish.texts("instruction_attributes")
        ),
    )


def parse_pricing(text: str | None, where: str) -> tuple[tuple[float, ...], str]:
    """Price numbers and price tag of a price text.

    No text: $100.0. Otherwise every part after a "$" is one number, made of its digits and dots
    ("$24.99 (20% off)" is 24.992); of several, the first two are the range.
    Errors: `CatalogueError` where a part holds no number or the text no "$".
    """
    if not text:
        return (UNKNOWN_PRICE,), f"${UNKNOWN_PRICE}"
    try:
        numbers = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in text.split("$")[1:]]
    except InvalidOperation:
        numbers = []
    if not numbers:
        raise CatalogueError(f"{where}: price must look like $12.99 or $5.00 - $9.00, got {text!r}")
    if len(numbers) == 1:
        return (numbers[0],), f"${numbers[0]}"
    return (numbers[0], numbers[1]), f"${numbers[0]} to ${numbers[1]}"


def index_text(product: Product) -> str:
    """The document that the search index holds: title, description, first bullet point and
    options, lower-cased (`convert_product_file_format.py` of the original).
    """
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullet_points[0] if product.bullet_points else ""
    return " ".join((product.title, product.description, first, options)).lower()


class _Fields:
    """A JSON object whose members are checked as they are read."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise CatalogueError(f"{where}: expected an object, got {value!r:.80}")
        self.values = cast(dict[str, object], value)
        self.where = where

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            got = f"{value!r:.80}" if key in self.values else "nothing"
            raise CatalogueError(f"{self.where}: {key} must be a text, got {got}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = _items(self.values.get(key), f"{self.where}: {key}")
        wrong = next((value for value in values if not isinstance(value, str)), None)
        if wrong is not None:
            raise CatalogueError(f"{self.where}: {key} must hold texts, got {wrong!r:.80}")
        return tuple(str(value) for value in values)


def _items(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise CatalogueError(f"{where} must be a list, got {value!r:.80}")
    return cast(list[object], value)


def _product(fields: _Fields, known: _Fields | None) -> Product:
    price = fields.values.get("pricing")
    pricing, price_tag = parse_pricing(fields.text("pricing") if price else None, fields.where)
    is_list = isinstance(fields.values.get("small_description"), list)
    has_attributes = known is not None and "attributes" in known.values
    return Product(
        asin=fields.text("asin"),
        title=fields.text("name"),
        description=fields.text("full_description"),
        bullet_points=(
            fields.texts("small_description") if is_list else (fields.text("small_description"),)
        ),
        pricing=pricing,
        price_tag=price_tag,
        options=_options(fields),
        attributes=known.texts("attributes") if known and has_attributes else (NO_ATTRIBUTE,),
        query=fields.text("query").lower().strip(),
        product_category=fields.text("product_category"),
        category=fields.text("category"),
    )


def _options(fields: _Fields) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups whose names collide when lower-cased: the later values at the earlier place."""
    groups = fields.values.get("customization_options")
    if not groups:
        return ()
    where = f"{fields.where}: customization_options"
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in _Fields(groups, where).values.items():
        if contents is not None:
            values = (_Fields(content, where).text("value") for content in _items(contents, where))
            options[name.lower()] = tuple(
                value.strip().replace("/", " | ").lower() for value in values
            )
    return tuple(options.items())


def _synthetic(known: _Fields) -> Instruction | None:
    if known.values.get("instruction") is None:
        return None
    attributes = known.texts("instruction_attributes")
    if not attributes:
        raise CatalogueError(f"{known.where}: an instruction without instruction_attributes")
    return Instruction(known.text("instruction"), attributes, None)


def _human(wish: _Fields) -> Instruction:
    return Instruction(
        wish.text("instruction").strip("."),
        wish.texts("instruction_attributes"),
        wish.texts("instruction_options"),
    )
