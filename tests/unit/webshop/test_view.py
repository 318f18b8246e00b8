"""The drawn page agrees with the observation and with what the engine does."""

from __future__ import annotations

import random

import pytest

from sero_core.config import WebShopEnv
from sero_core.envs import load_tasks, make_env, webshop_pages
from sero_core.envs.webshop import engine
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.state import Errand, Rules
from sero_core.envs.webshop.view import PageView, replay, view
from sero_core.types import SeroError
from tests.support.webshop import golden_shop
from tests.support.webshop_env import golden_env, golden_task, random_action


def test_every_offered_action_is_on_the_page() -> None:
    """Whatever is listed as admissible can be pressed in the view, and the other way round."""
    env, rng = golden_env(Rules(show_attributes=True)), random.Random(3)
    for goal in range(40):
        observation = env.reset(golden_task(goal))
        for _ in range(12):
            page = view(env.errand, env.state)
            assert page.text == observation.text
            assert PageView.model_validate_json(page.model_dump_json()) == page
            assert _actions(page) == set(observation.admissible)
            observation = env.step(random_action(observation, rng))


def test_an_episode_as_pages() -> None:
    shop = golden_shop()
    goal = next(g for g in shop.goals("synthetic") if g.asin == "B0X252L09E")
    title = shop.product(goal.product).title
    value = goal.options[0][1]
    pages = replay(
        shop,
        goal,
        Rules(),
        [
            f"search[{title}]",
            f"click[{goal.asin}]",
            f"click[{value}]",
            "click[features]",
            "click[< prev]",
            "click[< prev]",
            f"click[{goal.asin}]",
            "click[buy now]",
        ],
    )
    assert [page.kind for page in pages] == [
        *("search", "results", "item", "item", "sub", "item", "results", "item", "done")
    ]
    assert pages[1].products[0].asin == goal.asin
    assert not pages[1].products[0].is_visited
    assert pages[6].products[0].is_visited
    assert _chosen(pages[2]) == []
    assert _chosen(pages[3]) == _chosen(pages[5]) == [value]
    assert pages[4].texts == tuple(p.strip() for p in shop.product(goal.product).bullet_points)
    assert pages[8].product is not None
    assert pages[8].score is not None
    assert 0 < pages[8].score.reward < 1
    assert pages[8].score.details["r_price"] is True
    assert all(page.score is None for page in pages[:8])


def test_a_chosen_value_shows_even_where_the_text_hides_it() -> None:
    """text_rich never marks a value with a quote in it."""
    shop = golden_shop()
    errand = Errand(shop, shop.goals("synthetic")[315], Rules(mode="text_rich"))
    state = errand.start()
    for action in (
        'search[lumora kiha quilted cushion cover 16" x 16" square]',
        "click[b9rbp0qe3k]",
        'click[16" x 16"]',
    ):
        state, _ = engine.step(errand, state, action)
    page = view(errand, state)
    assert "clicked" not in page.text
    assert _chosen(page) == ['16" x 16"']


def _chosen(page: PageView) -> list[str]:
    return [option.value for group in page.groups for option in group.options if option.is_chosen]


def _actions(page: PageView) -> set[str]:
    found = {button.action for button in page.buttons}
    found |= {product.action for product in page.products}
    found |= {option.action for group in page.groups for option in group.options}
    return {action for action in found if action is not None}


def test_a_stored_episode_is_drawn_from_task_and_actions() -> None:
    """With the shop of this machine, if it is the one that the episode was played in."""
    config = WebShopEnv.model_validate({"catalogue": {"seed": 5, "num_products": 80}})
    task = load_tasks(config, "test")[0]
    env = make_env(config)
    texts = [env.reset(task).text, env.step("search[shoes]").text, env.step("nonsense").text]
    pages = webshop_pages(config, task.task_id, task.content_hash, ["search[shoes]", "nonsense"])
    assert [page.text for page in pages] == texts
    with pytest.raises(CatalogueError, match="other data"):
        webshop_pages(config, task.task_id, "0" * 64, [])
    with pytest.raises(SeroError, match="the shop has"):
        webshop_pages(config, "webshop/test/synthetic/999999", task.content_hash, [])
