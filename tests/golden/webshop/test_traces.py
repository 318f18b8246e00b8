"""Every observation, clickable, reward and end of the recorded episodes, without one difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.state import Errand, Rules, State
from tests.support.webshop import golden_json, golden_lines, golden_rows


@pytest.mark.parametrize(
    ("name", "num_episodes", "num_actions"), [("traces", 163, 2241), ("traces_quirks", 8, 71)]
)
def test_traces(name: str, num_episodes: int, num_actions: int) -> None:
    """`traces_quirks` needs the hidden searches open."""
    episodes = golden_lines(f"{name}.jsonl.gz")
    shop = _shop(episodes)
    for episode in episodes:
        goal = shop.goals(episode["goals"])[episode["goal"]]
        rules = Rules(
            mode=episode["mode"],
            show_attributes=episode["show_attrs"],
            has_back_doors=name == "traces_quirks",
        )
        errand = Errand(shop, goal, rules)
        state = errand.start()
        assert _seen(errand, state, 0.0) == _recorded(episode["reset"] | {"reward": 0.0})
        for place, record in enumerate(episode["steps"]):
            state, parts = engine.step(errand, state, record["action"])
            got = _seen(errand, state, parts.reward if parts else 0.0)
            assert got == _recorded(record), (episode["episode"], place, record["action"])
    assert len(episodes) == num_episodes
    assert sum(len(episode["steps"]) for episode in episodes) == num_actions


class TracedSearch:
    """The hits that the traces show, page by page, so that a failure here is the engine's alone."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}

    def search(self, query: str, num_hits: int) -> tuple[int, ...]:
        return tuple(self.found.get(query, ()))


def _shop(episodes: Sequence[dict[str, Any]]) -> Shop:
    index = TracedSearch()
    shop = Shop.from_raw(
        golden_rows(),
        golden_json("items_ins_v2.json"),
        golden_json("items_human_ins.json"),
        golden_json("title_nouns.json")["titles"],
        index=index,
    )
    places = {shop.product(place).asin.lower(): place for place in range(shop.num_products)}
    for episode in episodes:
        query = ""
        for record in episode["steps"]:
            typed = re.match(r"search\[(.+)\]", record["action"])
            query = typed[1].lower() if typed else query
            shown = re.search(r"Page (\d+) \(Total results: (\d+)\)", record["observation"])
            if shown:
                number, total = int(shown[1]), int(shown[2])
                hits = index.found.setdefault(query, [0] * total)
                page = [places[text] for text in record["clickables"] if text in places]
                hits[(number - 1) * 10 : (number - 1) * 10 + len(page)] = page
    return shop


def _seen(errand: Errand, state: State, reward: float) -> tuple[object, ...]:
    return (
        pages.render(errand, state),
        list(pages.clickables(errand, state)),
        state.page == "search",
        reward,
        state.is_done,
    )


def _recorded(record: dict[str, Any]) -> tuple[object, ...]:
    return (
        record["observation"],
        record["clickables"],
        record["has_search_bar"],
        record["reward"],
        record.get("done", False),
    )
