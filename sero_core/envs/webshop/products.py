"""Rows of WebShop's catalogue files as products, read exactly as the original engine reads them.

Rules of princeton-nlp/WebShop 64fa2a5, `engine.load_products`, oddities included: which rows are
skipped, what a price text means, how option values are spelled. Unknown keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sero_core.types import SeroError

T = TypeVar("T", bound=BaseModel)

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


class _OptionValue(BaseModel):
    value: str


class RawItem(BaseModel):
    """A row of `items_shuffle*.json`, the keys that are read."""

    model_config = ConfigDict(frozen=True)

    asin: str
    name: str
    full_description: str
    small_description: list[str] | str
    pricing: str | None = None
    product_category: str
    category: str
    query: str
    customization_options: dict[str, list[_OptionValue] | None] | str | None


class RawAttributes(BaseModel):
    """A value of `items_ins_v2*.json`."""

    attributes: list[str] | None = None
    instruction: str | None = None
    instruction_attributes: list[str] | None = None


class RawHuman(BaseModel):
    """An entry of a value of `items_human_ins.json`."""

    instruction: str
    instruction_attributes: list[str]
    instruction_options: list[str]


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
        item = _validated(RawItem, row, f"row {number}")
        if item.asin == "nan" or len(item.asin) > MAX_ASIN_LENGTH or item.asin in seen:
            continue
        seen.add(item.asin)
        yield read_entry(item, attributes(item.asin), human(item.asin))


def read_entry(item: RawItem, attributes: object | None, human: object | None) -> Entry:
    """One row with its values of the other files (None where they do not hold the asin)."""
    where = f"product {item.asin}"
    known = None if attributes is None else _validated(RawAttributes, attributes, where)
    if human is not None and not isinstance(human, Sequence):
        raise CatalogueError(f"{where}: human instructions must be a list, got {type(human)}")
    wishes = tuple(_validated(RawHuman, entry, where) for entry in human or ())
    return Entry(
        _product(item, known),
        _synthetic(known, where),
        tuple(
            Instruction(
                wish.instruction.strip("."),
                tuple(wish.instruction_attributes),
                tuple(wish.instruction_options),
            )
            for wish in wishes
            if wish.instruction_attributes
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


def _product(item: RawItem, known: RawAttributes | None) -> Product:
    pricing, price_tag = parse_pricing(item.pricing, f"product {item.asin}")
    points = item.small_description
    has_attributes = known is not None and known.attributes is not None
    return Product(
        asin=item.asin,
        title=item.name,
        description=item.full_description,
        bullet_points=tuple(points) if isinstance(points, list) else (points,),
        pricing=pricing,
        price_tag=price_tag,
        options=_options(item),
        attributes=tuple(known.attributes or ()) if known and has_attributes else (NO_ATTRIBUTE,),
        query=item.query.lower().strip(),
        product_category=item.product_category,
        category=item.category,
    )


def _options(item: RawItem) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups whose names collide when lower-cased: the later values at the earlier place."""
    groups = item.customization_options
    if not groups:
        return ()
    if isinstance(groups, str):
        raise CatalogueError(f"product {item.asin}: customization_options is the text {groups!r}")
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in groups.items():
        if contents is not None:
            options[name.lower()] = tuple(
                content.value.strip().replace("/", " | ").lower() for content in contents
            )
    return tuple(options.items())


def _synthetic(known: RawAttributes | None, where: str) -> Instruction | None:
    if known is None or known.instruction is None:
        return None
    if not known.instruction_attributes:
        raise CatalogueError(f"{where}: an instruction without instruction_attributes")
    return Instruction(known.instruction, tuple(known.instruction_attributes), None)


def _validated(model: type[T], value: object, where: str) -> T:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CatalogueError(
            f"{where}: {key or 'value'}: {first['msg']}, got {first['input']!r:.80}"
        ) from None
