"""Rows of the original files, oddities included, and errors that name the row."""

from __future__ import annotations

from typing import Any

import pytest

from sero_core.envs.webshop.products import (
    CatalogueError,
    Product,
    index_text,
    parse_pricing,
    read_entry,
    read_rows,
)

ROW: dict[str, Any] = {
    "asin": "B000000001",
    "name": " A Cup ",
    "full_description": "Holds tea.",
    "small_description": ["Easy clean", "Red"],
    "pricing": "$12.50",
    "product_category": "Home › Kitchen",
    "category": "garden",
    "query": "  Tea Cups ",
    "customization_options": "",
}


def product(**changes: object) -> Product:
    return read_entry({**ROW, **changes}, None, None).product


@pytest.mark.parametrize(
    ("text", "pricing", "tag"),
    [
        (None, (100.0,), "$100.0"),
        ("", (100.0,), "$100.0"),
        ("$5", (5.0,), "$5.0"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$5.0$9.0", (5.0, 9.0), "$5.0 to $9.0"),
        ("$19.00 - $11.00", (19.0, 11.0), "$19.0 to $11.0"),
        ("$5.00 $7.50 $9.99", (5.0, 7.5), "$5.0 to $7.5"),
        ("was $24.99 (20% off)", (24.992,), "$24.992"),
        ("$0.000001", (1e-06,), "$1e-06"),
    ],
)
def test_pricing(text: str | None, pricing: tuple[float, ...], tag: str) -> None:
    assert parse_pricing(text, "here") == (pricing, tag)


@pytest.mark.parametrize("text", ["12.99", "$", "free $", "$1.2.3"])
def test_pricing_the_original_crashes_on(text: str) -> None:
    with pytest.raises(CatalogueError, match="here: price must look like"):
        parse_pricing(text, "here")


def test_fields() -> None:
    cup = product()
    assert (cup.title, cup.query, cup.attributes) == (" A Cup ", "tea cups", ("DUMMY_ATTR",))
    assert cup.bullet_points == ("Easy clean", "Red")
    assert product(small_description="One").bullet_points == ("One",)
    assert product(small_description="").bullet_points == ("",)


def test_attributes_are_missing_empty_or_given() -> None:
    def attributes(value: object) -> tuple[str, ...]:
        return read_entry(ROW, value, None).product.attributes

    assert attributes({}) == ("DUMMY_ATTR",)
    assert attributes({"attributes": []}) == ()
    assert attributes({"attributes": ["easy clean"]}) == ("easy clean",)


def test_options() -> None:
    groups = {
        "Color": [{"value": " Black/White ", "image": None}],
        "Empty": [],
        "Nothing": None,
        "Size": [{"value": "S"}, {"value": "M"}],
        "color": [{"value": "İ"}],
    }
    assert product(customization_options=groups).options == (
        ("color", ("i̇",)),
        ("empty", ()),
        ("size", ("s", "m")),
    )
    for nothing in ("", None, [], {}):
        assert product(customization_options=nothing).options == ()


def test_index_text() -> None:
    groups = {"Color": [{"value": "Red"}, {"value": "Blue"}], "Size": [{"value": "S"}]}
    cup = product(customization_options=groups)
    assert index_text(cup) == " a cup  holds tea. easy clean color: red, blue, and size: s"
    assert index_text(product(small_description=[])) == " a cup  holds tea.  "


def test_lone_surrogates_are_kept() -> None:
    assert product(name="half \ud83d emoji").title == "half \ud83d emoji"


def test_skipped_rows() -> None:
    rows = [{**ROW, "asin": asin} for asin in ("nan", "B0000000012", "B1", "B2", "B1", "B3")]
    rows[4]["name"] = "second"
    found = read_rows(enumerate(rows), {}.get, {}.get, {"B3"})
    assert [entry.product.asin for entry in found] == ["B1", "B2"]


def test_instructions() -> None:
    attributes = {"attributes": ["a"], "instruction": "Find me a", "instruction_attributes": ["a"]}
    wishes = [
        {"instruction": "..a cup..", "instruction_attributes": ["a"], "instruction_options": ["S"]},
        {"instruction": "skipped", "instruction_attributes": [], "instruction_options": []},
    ]
    entry = read_entry(ROW, attributes, wishes)
    assert entry.synthetic is not None
    assert entry.synthetic.text == "Find me a"
    assert [(wish.text, wish.options) for wish in entry.human] == [("a cup", ("S",))]
    assert read_entry(ROW, {"attributes": ["a"], "instruction": None}, None).synthetic is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "row 7: expected an object, got"),
        ({"name": "x"}, "row 7: asin must be a text, got nothing"),
        ({**ROW, "asin": 5}, "row 7: asin must be a text, got 5"),
        ({**ROW, "name": None}, "product B000000001: name must be a text, got None"),
        ({**ROW, "pricing": 12.5}, "pricing must be a text, got 12.5"),
        ({**ROW, "small_description": ["a", 3]}, "small_description must hold texts, got 3"),
        ({**ROW, "customization_options": "x"}, "customization_options: expected an object"),
        ({**ROW, "customization_options": {"a": [{}]}}, "value must be a text, got nothing"),
        ({**ROW, "customization_options": {"a": "x"}}, "must be a list, got 'x'"),
    ],
)
def test_errors_name_the_row_or_product(row: object, message: str) -> None:
    with pytest.raises(CatalogueError, match=message):
        list(read_rows([(7, row)], {}.get, {}.get, set()))


def test_errors_in_the_other_files() -> None:
    with pytest.raises(CatalogueError, match="without instruction_attributes"):
        read_entry(ROW, {"instruction": "x", "instruction_attributes": []}, None)
    with pytest.raises(CatalogueError, match="human instructions must be a list"):
        read_entry(ROW, None, {})
