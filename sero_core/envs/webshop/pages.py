"""What a state shows: the texts of its page in order, what can be clicked, two renderings.

The original renders HTML and reads it back; its traces show here as: white space alone shrinks to
one space, or disappears where it holds a line break; an option counts as clicked where its quoted
text occurs in the page's address, which holds the query and the chosen options as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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


def build(errand: Errand, state: State) -> list[Node]:
    """The texts of a state's page in document order, as the page's template has them."""
    if state.page == "done":
        return _done(errand, state)
    instruction = errand.goal.instruction_text
    if state.page == "search":
        return [
            Node("text", "WebShop"),
            Node("text", "Instruction: "),
            Node("text", instruction),
            Node("button", SEARCH_BUTTON),
        ]
    head = [Node("text", "Instruction:"), Node("text", instruction), Node("button", BACK)]
    if state.page == "results":
        return head + _results(errand, state)
    head.append(Node("button", PREVIOUS))
    product = bought(errand, state)
    return head + (_item(errand, product) if state.page == "item" else _sub_page(state, product))


def shown(page: Iterable[Node]) -> list[Node]:
    """The visible texts: as an HTML parser hands them back, without those that vanish."""
    visible: list[Node] = []
    for node in page:
        text = node.text
        if text.strip(_HTML_SPACES):
            visible.append(node)
        elif text and "\n" not in text:
            visible.append(node._replace(text=" "))
    return visible


def render(errand: Errand, state: State, page: Iterable[Node]) -> str:
    """The observation text of a page in the errand's mode."""
    visible = shown(page)
    if errand.rules.mode == "text":
        return SEPARATOR.join([node.text.strip() for node in visible])
    return _rich(state, visible)


def clickables(page: Iterable[Node]) -> dict[str, Node]:
    """What can be clicked, by the text a click must name, in the engine's order: buttons, product
    links, options. Where two share a text the later one counts, at the earlier one's place.
    """
    buttons: dict[str, Node] = {}
    links: dict[str, Node] = {}
    options: dict[str, Node] = {}
    for node in page:
        if node.kind == "button":
            buttons[node.text.lower()] = node
        elif node.kind == "link":
            links[node.text.lower()] = node
        elif node.kind == "option":
            options[node.text] = node
    return buttons | links | options


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


def bought(errand: Errand, state: State) -> Product:
    """The product of an item page, sub-page or purchase."""
    if state.product is None:
        raise ValueError(f"a {state.page} page without a product: {state}")
    return errand.shop.product(state.product)


def _results(errand: Errand, state: State) -> list[Node]:
    number, total = state.page_number, len(hits(errand, state))
    page = [Node("text", f"Page {number} (Total results: {total})")]
    if number > 1:
        page.append(Node("button", PREVIOUS))
    page.append(Node("button", NEXT))
    for place in page_hits(errand, state):
        product = errand.shop.product(place)
        page.append(Node("link", product.asin, place))
        page.append(Node("text", product.title))
        page.append(Node("text", product.price_tag))
    return page


def _item(errand: Errand, product: Product) -> list[Node]:
    page: list[Node] = []
    for group, values in product.options:
        page.append(Node("text", group))
        page += [Node("option", value, None, group) for value in values]
    page += _texts(product.title, f"Price: {product.price_tag}", "Rating: N.A.")
    attributes = (ATTRIBUTES,) if errand.rules.show_attributes else ()
    labels = (DESCRIPTION, FEATURES, REVIEWS, *attributes, BUY)
    return page + [Node("button", label) for label in labels]


def _sub_page(state: State, product: Product) -> list[Node]:
    """Reviews are empty: the original never loads any."""
    if state.sub_page == "description":
        return _texts(product.description)
    if state.sub_page == "features":
        return _texts(*(f" {point}" for point in product.bullet_points))
    if state.sub_page == "attributes":
        about = (product.category, product.query, product.product_category)
        return _texts(*(f" {attribute}" for attribute in product.attributes), *about)
    return []


def _done(errand: Errand, state: State) -> list[Node]:
    """The receipt. Its reward is in the text; the goal's fields are never filled in."""
    options = json.dumps(dict(state.options), sort_keys=True).translate(_SAFE_IN_HTML)
    return _texts(
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


def _texts(*texts: str) -> list[Node]:
    return [Node("text", text) for text in texts]


def _rich(state: State, visible: Iterable[Node]) -> str:
    address = _address(state) if state.page == "item" else ""
    head = ""
    lines: list[str] = []
    for node in visible:
        text = node.text
        if node.kind == "text":
            lines.append(text)
        elif node.kind == "link":
            word = "clicked button" if node.place in state.visited else "button"
            lines.append(f"\n[{word}] {text} [{word}_]")
        elif node.kind == "button":
            lines.append(f"[button] {text} [button_]")
        elif f'"{text}"' in address:
            head = f"You have clicked {text}.\n{head}"
            lines.append(f"  [clicked button] {text} [clicked button_]")
        else:
            lines.append(f"  [button] {text} [button_]")
    return head + "\n".join([*lines, ""])


def _address(state: State) -> str:
    """The part of an item page's address that can hold a quoted text."""
    keywords = (state.query or "").replace(" ", "+")
    return f"{keywords}/{state.page_number}/{json.dumps(dict(state.options))}"


def address_names(state: State, name: str) -> bool:
    """Whether the query or a chosen option holds the name of a page (see `engine`)."""
    texts = [state.query or "", *(text for pair in state.options for text in pair)]
    return any(name in text for text in texts)
