"""WebShop as an `Environment`: a cursor over immutable states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.actions import OPEN_SEARCH, click, is_typable
from sero_core.envs.webshop.pages import Node
from sero_core.envs.webshop.reward import RewardParts
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.state import Errand, Rules, State
from sero_core.envs.webshop.tasks import goal_of
from sero_core.types import Observation, RestoreMismatch, Snapshot, Task

OpenShop = Callable[[Path, str], Shop]
"""The shop in a folder; fails unless its data has this content hash."""
Fact = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """A state with what it shows and its hash: a snapshot's handle.

    `parts` are those of the reward where the state is a purchase that was just made.
    """

    errand: Errand
    state: State
    observation: Observation
    state_hash: str
    parts: RewardParts | None = None


class WebShopEnv:
    """`Environment` for shopping goals. Many environments share one shop; each holds a state.

    Neither a step limit nor a reward is applied here.
    """

    def __init__(self, open_shop: OpenShop, rules: Rules = Rules()) -> None:  # noqa: B008
        self.rules = rules
        self._open_shop = open_shop
        self._task: Task | None = None
        self._errand: Errand | None = None
        self._moment: Moment | None = None
        self._page: list[Node] | None = None
        self._actions: tuple[str, ...] = ()

    def reset(self, task: Task) -> Observation:
        """Start an episode. Errors: those of opening the shop, `SeroError` for an unknown goal."""
        shop = self._open_shop(Path(task.path), task.content_hash)
        errand = Errand(shop, goal_of(shop, task.task_id), self.rules)
        self._task, self._errand, self._actions = task, errand, ()
        return self._go(errand.start())

    def step(self, action: str) -> Observation:
        before, errand = self.moment.state, self.errand
        if self._page is None:
            self._page = pages.build(errand, before)
        state, parts = engine.step(errand, before, action, self._page)
        if state is not before:
            self._go(state, parts)
        self._actions += (action,)
        return self.moment.observation

    def snapshot(self) -> Snapshot:
        moment = self.moment
        return Snapshot(self.task.task_id, self._actions, moment.state_hash, moment)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go to a recorded state of the current task: at once through its handle, else by replay.

        A state that is not the recorded one raises `RestoreMismatch`.
        """
        task, moment = self.task, snapshot.handle
        if snapshot.task_id != task.task_id:
            raise RestoreMismatch(
                f"restore of task {snapshot.task_id}: the environment plays {task.task_id}; "
                "reset it to the snapshot's task first"
            )
        errand = self._errand
        if not isinstance(moment, Moment) or not (
            moment.errand is errand or moment.errand == errand
        ):
            self.reset(task)
            for action in snapshot.actions:
                self.step(action)
            moment = self.moment
        self._moment, self._actions, self._page = moment, snapshot.actions, None
        if moment.state_hash != snapshot.state_hash:
            raise RestoreMismatch(
                f"restore of task {snapshot.task_id} differs at action {len(snapshot.actions)}: "
                f"got {moment.state_hash}, expected {snapshot.state_hash}"
            )
        return moment.observation

    def facts(self) -> frozenset[Fact]:
        """The goal and the whole state. Privileged: the goal's product and wishes are in it."""
        return facts(self.errand, self.moment.state)

    @property
    def state(self) -> State:
        return self.moment.state

    @property
    def moment(self) -> Moment:
        if self._moment is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._moment

    @property
    def errand(self) -> Errand:
        if self._errand is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._errand

    @property
    def task(self) -> Task:
        if self._task is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._task

    def close(self) -> None:
        """Forget the episode. The object can be reset again."""
        self._task = self._errand = self._moment = self._page = None
        self._actions = ()

    def _go(self, state: State, parts: RewardParts | None = None) -> Observation:
        self._page = pages.build(self.errand, state)
        self._moment = observe(self.errand, state, self._page, self.task.content_hash, parts)
        return self._moment.observation


def observe(
    errand: Errand,
    state: State,
    page: Sequence[Node],
    content_hash: str,
    parts: RewardParts | None = None,
) -> Moment:
    """What a state with this page shows, and its hash."""
    observation = Observation(
        pages.render(errand, state, page),
        admissible(state, page),
        is_won=state.reward == 1.0,
        is_terminated=state.is_done,
        score=state.reward or 0.0,
    )
    hashed = state_hash(observation, state, content_hash)
    return Moment(errand, state, observation, hashed, parts)


def admissible(state: State, page: Sequence[Node]) -> tuple[str, ...]:
    """The actions that a page offers and that can be typed: the search where there is a search
    bar, then the clicks in the engine's order. The search button is no action of its own.
    """
    if state.page == "search":
        return (OPEN_SEARCH,)
    return tuple(click(text) for text in pages.clickables(page) if is_typable(text))


def state_hash(observation: Observation, state: State, content_hash: str) -> str:
    """BLAKE2b-128 in hex over the data, the state and the observation that it shows."""
    ordered = (*state._replace(visited=frozenset()), sorted(state.visited))
    hasher = blake2b(digest_size=16)
    commands = "\n".join(observation.admissible)
    for part in (content_hash, repr(ordered), observation.text, commands):
        encoded = part.encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "big"))
        hasher.update(encoded)
    return hasher.hexdigest()


def facts(errand: Errand, state: State) -> frozenset[Fact]:
    """The goal and every part of a state that is set, as (predicate, argument, ...)."""
    goal, shop = errand.goal, errand.shop
    found: list[Fact] = [
        ("goal", goal.kind, str(goal.index)),
        ("goal_product", goal.asin),
        ("goal_price_upper", str(goal.price_upper)),
        ("page", state.page),
        ("page_number", str(state.page_number)),
    ]
    found += [("goal_attribute", attribute) for attribute in goal.attributes]
    found += [("goal_option", name or "", value) for name, value in goal.options]
    found += [("visited", shop.product(place).asin) for place in state.visited]
    found += [("option", name, value) for name, value in state.options]
    if state.query is not None:
        found.append(("query", state.query))
    if state.product is not None:
        found.append(("product", shop.product(state.product).asin))
    if state.sub_page is not None:
        found.append(("sub_page", state.sub_page))
    if state.reward is not None:
        found.append(("score", str(state.reward)))
    return frozenset(found)
