"""A page as a person would see it: plain data to draw, made from a state alone.

Unlike the observation text it marks what is really chosen and visited (`text` marks nothing,
`text_rich` goes by the page's address), and says which action each thing stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.actions import OPEN_SEARCH, click, is_typable
from sero_core.envs.webshop.goals import Goal
from sero_core.envs.webshop.products import Product
from sero_core.envs.webshop.reward import RewardParts, score
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.state import Errand, Page, Rules, State, SubPage


class View(BaseModel):
    model_config = ConfigDict(frozen=True)


class ButtonView(View):
    """Something to press. `action` is None where no action can name it."""

    label: str
    action: str | None


class OptionView(View):
    value: str
    is_chosen: bool
    action: str | None


class GroupView(View):
    """A group of options, of which at most one is chosen."""

    name: str
    options: tuple[OptionView, ...]


class ProductView(View):
    asin: str
    title: str
    price: str
    is_visited: bool
    action: str | None


class ScoreView(View):
    """The purchase's reward and its parts under the original's names; success is exactly 1.0."""

    reward: float
    details: dict[str, float | bool]


class PageView(View):
    """One page. `products` are those on a results page, `product` is the one of an item page,
    sub-page or purchase; `texts` are the body of a sub-page; `chosen` what was bought.
    """

    kind: Page
    sub_page: SubPage | None
    instruction: str
    query: str | None
    page_number: int
    num_hits: int
    products: tuple[ProductView, ...]
    product: ProductView | None
    groups: tuple[GroupView, ...]
    texts: tuple[str, ...]
    buttons: tuple[ButtonView, ...]
    chosen: dict[str, str]
    score: ScoreView | None
    text: str


def view(errand: Errand, state: State) -> PageView:
    """The page that a state shows; `text` is the raw observation."""
    page = pages.build(errand, state)
    shown = pages.clickables(page)
    is_results = state.page == "results"
    places = pages.page_hits(errand, state) if is_results else ()
    product = None if state.product is None else errand.shop.product(state.product)
    return PageView(
        kind=state.page,
        sub_page=state.sub_page,
        instruction=errand.goal.instruction_text,
        query=state.query,
        page_number=state.page_number,
        num_hits=len(pages.hits(errand, state)) if is_results else 0,
        products=tuple(_product(errand.shop.product(place), place, state) for place in places),
        product=None if product is None else _product(product, state.product, state),
        groups=_groups(product, state) if product and state.page == "item" else (),
        texts=_body(page) if state.page == "sub" else (),
        buttons=_buttons(state, shown),
        chosen=dict(state.options),
        score=_score(errand, state),
        text=pages.render(errand, state, page),
    )


def replay(shop: Shop, goal: Goal, rules: Rules, actions: Sequence[str]) -> list[PageView]:
    """The pages of an episode: before the first action and after each."""
    errand = Errand(shop, goal, rules)
    state = errand.start()
    views = [view(errand, state)]
    for action in actions:
        state, _ = engine.step(errand, state, action)
        views.append(view(errand, state))
    return views


def _product(product: Product, place: int | None, state: State) -> ProductView:
    return ProductView(
        asin=product.asin,
        title=product.title,
        price=product.price_tag,
        is_visited=place in state.visited,
        action=click(product.asin.lower()) if state.page == "results" else None,
    )


def _groups(product: Product, state: State) -> tuple[GroupView, ...]:
    chosen = dict(state.options)
    return tuple(
        GroupView(
            name=name,
            options=tuple(
                OptionView(
                    value=value,
                    is_chosen=chosen.get(name) == value,
                    action=click(value) if is_typable(value) else None,
                )
                for value in values
            ),
        )
        for name, values in product.options
    )


def _buttons(state: State, shown: dict[str, pages.Node]) -> tuple[ButtonView, ...]:
    if state.page == "search":
        return (ButtonView(label=pages.SEARCH_BUTTON, action=OPEN_SEARCH),)
    return tuple(
        ButtonView(label=node.text, action=click(text))
        for text, node in shown.items()
        if node.kind == "button"
    )


def _body(page: Sequence[pages.Node]) -> tuple[str, ...]:
    """A sub-page's texts after the instruction and the two buttons."""
    texts = [node.text.strip() for node in pages.shown(page) if node.kind == "text"]
    return tuple(texts[2:])


def _score(errand: Errand, state: State) -> ScoreView | None:
    if not state.is_done or state.product is None:
        return None
    parts: RewardParts = score(
        errand.shop, errand.goal, state.product, state.options, errand.rules.reward
    )
    return ScoreView(reward=parts.reward, details=parts.details())
