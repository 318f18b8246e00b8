"""One step: a pure function of the state and the typed text. It never raises.

Source: princeton-nlp/WebShop 64fa2a5 (`web_agent_text_env.py`), oddities kept: a search works on
every page before the purchase, a click must name something of the page (and never the search
button), and anything else leaves the page as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from sero_core.envs.webshop import pages
from sero_core.envs.webshop.actions import CLICK, SEARCH, parse_action
from sero_core.envs.webshop.pages import Node
from sero_core.envs.webshop.reward import RewardParts, score
from sero_core.envs.webshop.state import SUB_PAGES, Errand, State

PageName = Literal["search_results", "item_page", "item_sub_page"]
_SEARCH_CLICK: Final = pages.SEARCH_BUTTON.lower()
_BACK: Final = pages.BACK.lower()
_NEXT: Final = pages.NEXT.lower()
_PREVIOUS: Final = pages.PREVIOUS.lower()
_BUY: Final = pages.BUY.lower()


def step(
    errand: Errand, state: State, text: str, page: Sequence[Node] | None = None
) -> tuple[State, RewardParts | None]:
    """The state after an action, and the reward's parts where it was the purchase.

    The same state object where the action has no effect; nothing has one after the purchase.
    `page` is `pages.build(errand, state)` where the caller has it already.
    """
    action = parse_action(text)
    if action is None or state.is_done:
        return state, None
    if action.name == SEARCH:
        return _search(errand, state, action.argument), None
    if action.name == CLICK and action.argument != _SEARCH_CLICK:
        page = pages.build(errand, state) if page is None else page
        node = pages.clickables(page).get(action.argument)
        if node is not None:
            return _click(errand, state, action.argument, node)
    return state, None


def _search(errand: Errand, state: State, query: str) -> State:
    if errand.rules.has_back_doors and pages.is_missing_category(query):
        return state
    return _results(state._replace(query=query), 1)


def _click(errand: Errand, state: State, name: str, node: Node) -> tuple[State, RewardParts | None]:
    """The tests in the original's order: an option whose value is a button's label acts as that
    button where the button would act.
    """
    if name == _BUY:
        return _buy(errand, state)
    if name == _BACK:
        return errand.start(), None
    where = page_name(state)
    if name == _NEXT and where == "search_results":
        return _results(state, state.page_number + 1), None
    if name == _PREVIOUS and where == "search_results":
        return _results(state, state.page_number - 1), None
    if name == _PREVIOUS and where == "item_sub_page":
        return state._replace(page="item", sub_page=None), None
    if name == _PREVIOUS and where == "item_page":
        return _results(state, state.page_number), None
    for sub_page in SUB_PAGES:
        if name == sub_page:
            return state._replace(page="sub", sub_page=sub_page), None
    return _item(state, name, node), None


def page_name(state: State) -> PageName:
    """Which page the original takes an address for: the first of these names that occurs in it.

    The address holds the query and the chosen options, so an agent that searches for
    "search_results" makes "< prev" on an item page turn pages.
    """
    if state.page == "results" or pages.address_names(state, "search_results"):
        return "search_results"
    if state.page == "item" or pages.address_names(state, "item_page"):
        return "item_page"
    return "item_sub_page"


def _results(state: State, page_number: int) -> State:
    return state._replace(
        page="results", page_number=page_number, product=None, options=(), sub_page=None
    )


def _item(state: State, name: str, node: Node) -> State:
    """A product link opens its product; an option is chosen, over an earlier one of its group."""
    state = state._replace(page="item", sub_page=None)
    if node.kind == "link" and node.place is not None:
        return state._replace(product=node.place, visited=state.visited | {node.place})
    if node.kind == "option" and node.group is not None:
        options = dict(state.options) | {node.group.lower(): name}
        return state._replace(options=tuple(options.items()))
    return state


def _buy(errand: Errand, state: State) -> tuple[State, RewardParts | None]:
    if state.product is None:
        raise ValueError(f"a purchase without a product: {state}")
    parts = score(errand.shop, errand.goal, state.product, state.options, errand.rules.reward)
    return state._replace(page="done", sub_page=None, reward=parts.reward), parts
