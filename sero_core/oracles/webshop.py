"""Shops from any state to a purchase that scores 1.0.

It knows the goal's product (privileged), but finds it as a customer would: by a query made of the
instruction's own words wherever one works, and of the product's title only where none does
(docs/webshop.md, Oracle). It reads the environment's state anew at every step, so an action of
someone else in between does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.actions import click, search
from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, PRODUCTS_PER_PAGE
from sero_core.envs.webshop.products import index_text
from sero_core.envs.webshop.purchase import Choice, winning_choice
from sero_core.envs.webshop.reward import score
from sero_core.envs.webshop.state import Errand, State
from sero_core.types import DeadEnd, Observation, Oracle, OracleError, Prefix

QuerySource = Literal["instruction", "title", "description"]
"""Where a query's words come from; only the instruction is visible to the policy."""
_SOURCES: Final[tuple[QuerySource, ...]] = ("instruction", "title", "description")
MAX_PAGES: Final = 3
"""Results are turned over this often before the title is used instead of the instruction."""
MAX_DESCRIPTION_WORDS: Final = 30
_PRICE: Final = re.compile(r",? and price lower than [\d.]+ dollars$")
_UNTYPABLE: Final = re.compile(r"[\[\]\s]+")


class WebShopOracle(BaseModel):
    """Buys the goal's product by queries from the instruction. 100 % where 1.0 can be earned."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    envs: ClassVar[tuple[str, ...]] = ("webshop",)

    name: Literal["webshop"] = "webshop"

    def __call__(self) -> Oracle:
        return Shopper()


@dataclass(frozen=True, slots=True)
class Query:
    """A query, the page of its results that shows the product (from 1), and its words' source."""

    text: str
    page: int
    source: QuerySource


@dataclass(frozen=True, slots=True)
class Plan:
    """What to buy, with which options, and how to find it."""

    product: int
    choice: Choice
    query: Query


class Shopper:
    """Follows the plan of its goal from wherever the environment is."""

    def __init__(self) -> None:
        self._env: WebShopEnv | None = None
        self._plan: Plan | None = None

    def start(self, prefix: Prefix) -> None:
        """Errors: `DeadEnd` for a goal that no purchase satisfies, or that no search finds."""
        if not isinstance(prefix.env, WebShopEnv):
            raise OracleError(f"the shopper plays WebShop only, got task {prefix.task.task_id}")
        self._env = prefix.env
        self._plan = make_plan(prefix.env.errand)

    def act(self, observation: Observation) -> str:
        if self._env is None or self._plan is None:
            raise OracleError("the shopper was not started")
        return next_action(self._env.errand, self._env.state, self._plan)

    @property
    def note(self) -> str:
        """Whose words the query of the plan is made of."""
        return "" if self._plan is None else f"query from the {self._plan.query.source}"


def next_action(errand: Errand, state: State, plan: Plan) -> str:
    """The next step of a shortest way along the plan. Errors: `DeadEnd` after a purchase."""
    if state.is_done:
        raise DeadEnd("something was bought already")
    if state.page == "search":
        return search(plan.query.text)
    if state.product == plan.product and state.page == "item":
        return _on_the_product(errand, state, plan)
    if state.product == plan.product:
        return click(PREVIOUS.lower())
    anew = 2 + plan.query.page  # back, search, pages to turn, product link
    found = _place(errand, state, plan.product)
    if found is None:
        return click(BACK.lower())
    turns = found // PRODUCTS_PER_PAGE + 1 - state.page_number
    leave = {"results": 0, "item": 1}.get(state.page, 2)
    if leave + abs(turns) + 1 > anew:
        return click(BACK.lower())
    if leave:
        return click(PREVIOUS.lower())
    if turns:
        return click((NEXT if turns > 0 else PREVIOUS).lower())
    return click(errand.shop.product(plan.product).asin.lower())


@lru_cache(maxsize=4096)
def _plan(errand: Errand) -> Plan | str:
    """The plan of a goal, or why there is none."""
    choice = winning_choice(errand.shop, errand.goal, errand.rules.reward)
    if choice is None:
        return (
            f"no purchase of {errand.goal.asin} scores 1.0 under reward `{errand.rules.reward}`: "
            "the goal is known to be unsolvable"
        )
    query = find_query(errand)
    if query is None:
        return f"no search finds {errand.goal.asin}"
    return Plan(errand.goal.product, choice, query)


def make_plan(errand: Errand) -> Plan:
    """The plan of a goal. Errors: `DeadEnd` saying why there is none."""
    plan = _plan(errand)
    if isinstance(plan, str):
        raise DeadEnd(plan)
    return plan


def find_query(errand: Errand) -> Query | None:
    """The best query: one of the instruction that shows the product within the first pages, else of
    the title, of the description, or any of the instruction; None where no words find it.
    """
    found: list[tuple[int, int, Query]] = []
    for text, source in _queries(errand):
        page = _page_of(errand, text)
        if page is None:
            continue
        is_far = source == "instruction" and page > MAX_PAGES
        found.append(
            (len(_SOURCES) if is_far else _SOURCES.index(source), page, Query(text, page, source))
        )
        if min(rank for rank, _, _ in found) == 0 and (page == 1 or source != "instruction"):
            break
    return min(found, key=lambda item: item[:2])[2] if found else None


def _queries(errand: Errand) -> Iterator[tuple[str, QuerySource]]:
    """Queries worth trying, the shortest of the instruction first."""
    wish = _PRICE.sub("", errand.goal.instruction_text)
    core = wish.partition(" with ")[0]
    options = [value for _, value in errand.goal.options if value in errand.goal.instruction_text]
    product = errand.shop.product(errand.goal.product)
    described = " ".join(index_text(product).split()[:MAX_DESCRIPTION_WORDS])
    texts: list[tuple[str, QuerySource]] = [
        (core, "instruction"),
        (" ".join([core, *options]), "instruction"),
        (wish, "instruction"),
        (errand.goal.instruction_text, "instruction"),
        (product.title, "title"),
        (described, "description"),
        (product.description, "description"),
    ]
    seen: set[str] = set()
    for text, source in texts:
        query = _UNTYPABLE.sub(" ", text).strip().lower()
        if query and query not in seen:
            seen.add(query)
            yield query, source


def _page_of(errand: Errand, query: str) -> int | None:
    """The page of results that shows the goal's product, from 1."""
    state, _ = engine.step(errand, errand.start(), search(query))
    place = _place(errand, state, errand.goal.product)
    return None if place is None else place // PRODUCTS_PER_PAGE + 1


def _place(errand: Errand, state: State, product: int) -> int | None:
    """Where a product stands among all that the state's query finds, from 0."""
    found = pages.hits(errand, state)
    return found.index(product) if product in found else None


def _on_the_product(errand: Errand, state: State, plan: Plan) -> str:
    """Buy where what is chosen scores 1.0 already, else choose what is missing."""
    chosen = dict(state.options)
    missing = [value for group, value in plan.choice if chosen.get(group) != value]
    reward = errand.rules.reward
    if score(errand.shop, errand.goal, plan.product, state.options, reward).reward == 1.0:
        return click(BUY.lower())
    if missing[0] == NEXT.lower() and engine.page_name(state) == "search_results":
        return click(BACK.lower())  # a query with a page's name makes this option turn pages
    return click(missing[0])
