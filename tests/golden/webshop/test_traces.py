"""Every observation, clickable, reward and end of the recorded episodes, without one difference."""

from __future__ import annotations

from typing import Any

import pytest

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.state import Errand, Rules, State
from tests.support.webshop import golden_lines, golden_shop


@pytest.mark.parametrize(
    ("name", "num_episodes", "num_actions"), [("traces", 163, 2241), ("traces_quirks", 8, 71)]
)
def test_traces(name: str, num_episodes: int, num_actions: int) -> None:
    """`traces_quirks` needs the hidden searches open."""
    episodes = golden_lines(f"{name}.jsonl.gz")
    shop = golden_shop()
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


def _seen(errand: Errand, state: State, reward: float) -> tuple[object, ...]:
    page = pages.build(errand, state)
    return (
        pages.render(errand, state, page),
        list(pages.clickables(page)),
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
