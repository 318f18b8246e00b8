"""The webshop oracle: from any visited state to a purchase that scores 1.0, or why not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sero_core.envs.admissible import is_admissible
from sero_core.envs.webshop.goals import GOAL_KINDS, GoalKind
from sero_core.envs.webshop.purchase import winning_choice
from sero_core.envs.webshop.reward import RewardVariant
from sero_core.envs.webshop.state import Rules
from sero_core.oracles.webshop import Shopper, WebShopOracle, find_query
from sero_core.types import DeadEnd, Observation, OracleError, Prefix
from tests.support.alfworld import handmade_game, write_task
from tests.support.webshop import golden_shop
from tests.support.webshop_env import golden_env, golden_task, random_action

NUM_STATES = 300
MAX_STEPS = 10


@pytest.mark.parametrize("variant", ["original", "fixed"])
@pytest.mark.parametrize("kind", GOAL_KINDS)
def test_it_wins_from_random_states_of_every_solvable_goal(
    kind: GoalKind, variant: RewardVariant
) -> None:
    """Only by actions that the page offers, within the 10 steps that a branch may have."""
    rng = random.Random(17)
    env, oracle = golden_env(Rules(reward=variant)), Shopper()
    goals = [
        goal.index
        for goal in golden_shop().goals(kind)
        if winning_choice(golden_shop(), goal, variant) is not None
    ]
    notes: Counter[str] = Counter()
    for _ in range(NUM_STATES):
        task = golden_task(rng.choice(goals), kind)
        observation = env.reset(task)
        for _ in range(rng.randrange(15)):
            action = random_action(observation, rng)
            before = env.snapshot()
            observation = env.step(action)
            if observation.is_terminated:
                observation = env.restore(before)
        oracle.start(Prefix(task, (), observation, env))
        num_steps = 0
        while not observation.is_terminated:
            action = oracle.act(observation)
            assert is_admissible("webshop", observation, action)
            if action.startswith("search"):
                assert observation.admissible == ("search[<your query>]",)
            assert action == action.lower()
            observation = env.step(action)
            num_steps += 1
        assert observation.is_won, (task.task_id, env.snapshot().actions)
        assert num_steps <= MAX_STEPS
        notes[oracle.note] += 1
    assert notes["query from the instruction"] > 0.95 * NUM_STATES


def test_a_shortest_way_from_the_product_itself() -> None:
    """Options that are chosen already are kept, even others than the plan's if they score 1.0."""
    env, oracle = golden_env(), Shopper()
    goal = next(
        g
        for g in golden_shop().goals("synthetic")
        if len(g.options) == 2 and winning_choice(golden_shop(), g, "original") == g.options
    )
    task = golden_task(goal.index)
    env.reset(task)
    product = golden_shop().product(goal.product)
    env.step(f"search[{product.title}]")
    observation = env.step(f"click[{product.asin}]")
    oracle.start(Prefix(task, (), observation, env))
    assert oracle.act(observation) == f"click[{goal.options[0][1]}]"
    observation = env.step(f"click[{goal.options[1][1]}]")
    assert oracle.act(observation) == f"click[{goal.options[0][1]}]"
    observation = env.step(f"click[{goal.options[0][1]}]")
    assert oracle.act(observation) == "click[buy now]"
    observation = env.step("click[description]")
    assert oracle.act(observation) == "click[< prev]"
    assert env.step("click[buy now]") == observation


def test_dead_ends_are_named() -> None:
    shop, env, oracle = golden_shop(), golden_env(), WebShopOracle()()
    unsolvable = [
        goal for goal in shop.goals("synthetic") if winning_choice(shop, goal, "original") is None
    ]
    assert len(unsolvable) == 150
    for goal in unsolvable[:20]:
        observation = env.reset(golden_task(goal.index))
        with pytest.raises(DeadEnd, match="unsolvable"):
            oracle.start(Prefix(golden_task(goal.index), (), observation, env))
    solvable = next(g.index for g in shop.goals("synthetic") if g not in unsolvable)
    observation = env.reset(golden_task(solvable))
    oracle.start(Prefix(golden_task(solvable), (), observation, env))
    env.step("search[headphones]")
    link = next(a for a in env.moment.observation.admissible if a.startswith("click[b0"))
    env.step(link)
    observation = env.step("click[buy now]")
    with pytest.raises(DeadEnd, match="bought already"):
        oracle.act(observation)


def test_an_option_called_next_in_a_query_with_a_page_name() -> None:
    """There "next >" would turn pages for ever: the oracle searches anew."""
    shop, env, oracle = golden_shop(), golden_env(), Shopper()
    goal = next(
        g
        for g in shop.goals("synthetic")
        if any(value == "next >" for _, value in winning_choice(shop, g, "original") or ())
    )
    task = golden_task(goal.index)
    env.reset(task)
    env.step(f"search[search_results {shop.product(goal.product).title}]")
    observation = env.step(f"click[{goal.asin}]")
    assert env.state.page == "item"
    oracle.start(Prefix(task, (), observation, env))
    actions: list[str] = []
    while not observation.is_terminated and len(actions) < MAX_STEPS:
        actions.append(oracle.act(observation))
        observation = env.step(actions[-1])
    assert observation.is_won
    assert "click[back to search]" in actions


def test_queries_of_the_instruction_come_first() -> None:
    shop, env = golden_shop(), golden_env()
    sources: Counter[str] = Counter()
    for goal in shop.goals("synthetic"):
        if winning_choice(shop, goal, "original") is None:
            continue
        env.reset(golden_task(goal.index))
        query = find_query(env.errand)
        assert query is not None
        sources[query.source] += 1
        if query.source == "instruction":
            assert set(query.text.split()) <= set(goal.instruction_text.lower().split()) | {
                word.strip(",") for word in goal.instruction_text.lower().split()
            }
        assert env.step(f"search[{query.text}]").text.count("[SEP]") > 5
    assert sources["instruction"] > 0.95 * sources.total()


def test_it_plays_webshop_only(tmp_path) -> None:  # noqa: ANN001
    from sero_core.envs.alfworld.env import AlfworldEnv

    task = write_task(tmp_path, handmade_game())
    env = AlfworldEnv(cache_dir=tmp_path)
    observation = env.reset(task)
    with pytest.raises(OracleError, match="WebShop only"):
        Shopper().start(Prefix(task, (), observation, env))
    with pytest.raises(OracleError, match="not started"):
        Shopper().act(Observation("", ()))
