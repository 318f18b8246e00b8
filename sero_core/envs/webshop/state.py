"""Where an episode is: an immutable, hashable value. Everything shown follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sero_core.envs.webshop.goals import Goal, GoalKind
from sero_core.envs.webshop.reward import RewardVariant
from sero_core.envs.webshop.shop import Shop

ENGINE_VERSION: Final = 1
"""Goes up with every change that can change an observation, a reward or a state."""
Page = Literal["search", "results", "item", "sub", "done"]
SubPage = Literal["description", "features", "reviews", "attributes"]
SUB_PAGES: Final[tuple[SubPage, ...]] = ("description", "features", "reviews", "attributes")
ObservationMode = Literal["text", "text_rich"]


class State(NamedTuple):
    """A state of an episode. `product` and `visited` are places in the shop.

    `query` is None before the first search and after going back to search. `options` keeps the
    order of the first click per group; a later click changes the value in place. `reward` is set
    by the purchase. Picklable, and the same in every process.
    """

    kind: GoalKind
    goal: int
    page: Page = "search"
    query: str | None = None
    page_number: int = 1
    product: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    visited: frozenset[int] = frozenset()
    sub_page: SubPage | None = None
    reward: float | None = None

    @property
    def is_done(self) -> bool:
        return self.page == "done"


@dataclass(frozen=True, slots=True)
class Rules:
    """How the shop is played: the reward, what is shown, and whether the hidden searches
    `<q> query` and `<c> category` work. Closed, their text is searched like any other.
    """

    reward: RewardVariant = "original"
    mode: ObservationMode = "text"
    show_attributes: bool = False
    has_back_doors: bool = False


@dataclass(frozen=True, slots=True)
class Errand:
    """What stays the same during an episode: the shop, the goal and the rules."""

    shop: Shop
    goal: Goal
    rules: Rules = Rules()

    def start(self) -> State:
        """The search page."""
        return State(self.goal.kind, self.goal.index)
