"""What a state shows: the texts of its page in order, what can be clicked, two renderings.

The original renders HTML and reads it back; its traces show here as: white space alone shrinks to
one space, or disappears where it holds a line break; an option counts as clicked where its quoted
text occurs in the page's address, which holds the query and the chosen options as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from sero_core.envs.webshop.products import Product
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.state import Errand, State

PRODUCTS_PER_PAGE: Final = 10
SEPARATOR: Final = " [SEP] "
_HTML_SPACES: Final = " \n\t\x0c\r"

SEARCH_BUTTON: Final = "Search"
BACK: Final = "Back to Search"
NEXT: Final = "Next >"
PREVIOUS: Final = "< Prev"
DESCRIPTION: Final = "Description"
FEATURES: Final = "Features"
REVIEWS: Final = "Reviews"
ATTRIBUTES: Final = "Attributes"
BUY: Final = "Buy Now"
_SAFE_IN_HTML: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'"}
_QUERY_DOOR: Final = "<q>"
_CATEGORY_DOOR: Final = "<c>"


class Node(NamedTuple):
    """One text of a page. `place` is the product of a link, `group` the group of an option."""

    kind: Literal["text", "button", "link", "option"]
    text: str
    place: int | None = None
    group: str | None = None


def nodes(errand: Errand, state: State) -> list[Node]:
    """The visible texts of a page in document order."""
    page = ((node, _shown(node.text)) for node in _raw(errand, state))
    return [node._replace(text=text) for node, text in page if text]


def render(errand: Errand, state: State) -> str:
    """The observation text in the errand's mode."""
    if errand.rules.mode == "text":
        return SEPARATOR.join(node.text.strip() for node in nodes(errand, state))
    return _rich(errand, state)


def clickables(errand: Errand, state: State) -> dict[str, Node]:
    """What can be clicked, by the text a click must name, in the engine's order: buttons, product
    links, options. Where two share a text the later one counts, at the earlier one's place.
    """
    found: dict[str, Node] = {}
    page = list(_raw(errand, state))
    for kind in ("button", "link"):
        found |= {node.text.lower(): node for node in page if node.kind == kind}
    return found | {node.text: node for node in page if node.kind == "option"}


def hits(errand: Errand, state: State) -> tuple[int, ...]:
    """The places of all products that the state's query finds, best first."""
    query = state.query or ""
    if errand.rules.has_back_doors and query.partition(" ")[0] in (_QUERY_DOOR, _CATEGORY_DOOR):
        return _listed(errand.shop, query)
    return _found(errand.shop, query)


def page_hits(errand: Errand, state: State) -> tuple[int, ...]:
    """Those on the state's page of results."""
    start = (state.page_number - 1) * PRODUCTS_PER_PAGE
    return hits(errand, state)[start : start + PRODUCTS_PER_PAGE]


def is_missing_category(query: str) -> bool:
    """The hidden category search without a category, at which the original crashes."""
    return query == _CATEGORY_DOOR


@lru_cache(maxsize=4096)
def _found(shop: Shop, query: str) -> tuple[int, ...]:
    return shop.search(query)


@lru_cache(maxsize=64)
def _listed(shop: Shop, query: str) -> tuple[int, ...]:
    """The hidden searches: every product with this query, or of this category."""
    door, *words = query.split(" ")
    products = (shop.product(place) for place in range(shop.num_products))
    if door == _QUERY_DOOR:
        wanted = " ".join(words).strip()
        return tuple(place for place, item in enumerate(products) if item.query == wanted)
    wanted = words[0].strip()
    return tuple(place for place, item in enumerate(products) if item.category == wanted)


def _raw(errand: Errand, state: State) -> Iterator[Node]:
    """The texts of the page's template, before white space is read as HTML."""
    if state.page == "done":
        yield from _done(errand, state)
        return
    if state.page == "search":
        yield Node("text", "WebShop")
        yield Node("text", "Instruction: ")
        yield Node("text", errand.goal.instruction_text)
        yield Node("button", SEARCH_BUTTON)
        return
    yield Node("text", "Instruction:")
    yield Node("text", errand.goal.instruction_text)
    yield Node("button", BACK)
    if state.page == "results":
        yield from _results(errand, state)
        return
    yield Node("button", PREVIOUS)
    product = bought(errand, state)
    yield from _item(errand, product) if state.page == "item" else _sub_page(state, product)


def bought(errand: Errand, state: State) -> Product:
    """The product of an item page, sub-page or purchase."""
    if state.product is None:
        raise ValueError(f"a {state.page} page without a product: {state}")
    return errand.shop.product(state.product)


def _results(errand: Errand, state: State) -> Iterator[Node]:
    number, total = state.page_number, len(hits(errand, state))
    yield Node("text", f"Page {number} (Total results: {total})")
    if number > 1:
        yield Node("button", PREVIOUS)
    yield Node("button", NEXT)
    for place in page_hits(errand, state):
        product = errand.shop.product(place)
        yield Node("link", product.asin, place=place)
        yield Node("text", product.title)
        yield Node("text", product.price_tag)


def _item(errand: Errand, product: Product) -> Iterator[Node]:
    for group, values in product.options:
        yield Node("text", group)
        for value in values:
            yield Node("option", value, group=group)
    yield Node("text", product.title)
    yield Node("text", f"Price: {product.price_tag}")
    yield Node("text", "Rating: N.A.")
    for button in (DESCRIPTION, FEATURES, REVIEWS):
        yield Node("button", button)
    if errand.rules.show_attributes:
        yield Node("button", ATTRIBUTES)
    yield Node("button", BUY)


def _sub_page(state: State, product: Product) -> Iterator[Node]:
    """Reviews are empty: the original never loads any."""
    if state.sub_page == "description":
        yield Node("text", product.description)
    elif state.sub_page == "features":
        for point in product.bullet_points:
            yield Node("text", f" {point}")
    elif state.sub_page == "attributes":
        for attribute in product.attributes:
            yield Node("text", f" {attribute}")
        for text in (product.category, product.query, product.product_category):
            yield Node("text", text)


def _done(errand: Errand, state: State) -> Iterator[Node]:
    """The receipt. Its reward is in the text; the goal's fields are never filled in."""
    options = json.dumps(dict(state.options), sort_keys=True).translate(_SAFE_IN_HTML)
    texts = (
        "Thank you for shopping with us!",
        "Your code: ",
        "None",
        " (Paste it in your MTurk interface.)",
        "Purchased",
        "asin",
        bought(errand, state).asin,
        "options",
        options,
        *("attrs", "None", "category", "None", "query", "None", "product category", "None"),
        *("Target", "asin", "options", "attrs", "price upper", "instuction text", "category"),
        *("product category", "query", "Goal ", "None", "Reward"),
        "Your score (min 0.0, max 1.0)",
        str(state.reward),
        "Reward Details ",
        "None",
    )
    yield from (Node("text", text) for text in texts)


def _shown(text: str) -> str:
    """A text as an HTML parser hands it back; empty where nothing is left of it."""
    if text.strip(_HTML_SPACES):
        return text
    return " " if text and "\n" not in text else ""


def _rich(errand: Errand, state: State) -> str:
    address = _address(errand, state) if state.page == "item" else ""
    head, lines = "", ""
    for node in nodes(errand, state):
        text = node.text
        if node.kind == "text":
            lines += f"{text}\n"
        elif node.kind == "link":
            word = "clicked button" if node.place in state.visited else "button"
            lines += f"\n[{word}] {text} [{word}_]\n"
        elif node.kind == "button":
            lines += f"[button] {text} [button_]\n"
        elif f'"{text}"' in address:
            head = f"You have clicked {text}.\n{head}"
            lines += f"  [clicked button] {text} [clicked button_]\n"
        else:
            lines += f"  [button] {text} [button_]\n"
    return head + lines


def _address(errand: Errand, state: State) -> str:
    """The part of an item page's address that can hold a quoted text."""
    keywords = (state.query or "").replace(" ", "+")
    return f"{keywords}/{state.page_number}/{json.dumps(dict(state.options))}"


def address_names(state: State, name: str) -> bool:
    """Whether the query or a chosen option holds the name of a page (see `engine`)."""
    texts = [state.query or "", *(text for pair in state.options for text in pair)]
    return any(name in text for text in texts)
