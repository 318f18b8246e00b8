"""A few generated games of every type, their winning plans, and a collector around a script."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sero_core.collect import Collector
from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.envs.vector import EnvPool, LocalEnvs
from sero_core.envs.webshop import source
from sero_core.envs.webshop.generated import make_shop
from sero_core.oracles.planner import PlannerOracle
from sero_core.policy import DEMO_POLICY, load_tokenizer
from sero_core.prompts import PromptBuilder, task_text
from sero_core.sections import PromptConfig, RolloutConfig
from sero_core.sections_webshop import WebShopEnv as WebShopConfig
from sero_core.types import Prefix, Task
from tests.support.scripted import ScriptedEngine

MakeCollector = Callable[[Callable[[str, int], str]], tuple[Collector, ScriptedEngine]]


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, ...]:
    root = tmp_path_factory.mktemp("games") / "generated"
    counts = {"train": 6, "valid_seen": 6, "valid_unseen": 0}
    generate(root, seed=12, difficulty="small", counts=counts)
    return list_tasks(root, "valid_seen")


@pytest.fixture(scope="session")
def plans(tasks: tuple[Task, ...]) -> dict[str, list[str]]:
    """By the task's sentence: actions that win."""
    found: dict[str, list[str]] = {}
    env, oracle = AlfworldEnv(), PlannerOracle()()
    for task in tasks:
        observation = env.reset(task)
        goal = task_text(observation.text)
        oracle.start(Prefix(task, (), observation, env))
        actions: list[str] = []
        while not observation.is_terminated:
            actions.append(oracle.act(observation))
            observation = env.step(actions[-1])
        found[goal] = actions
    assert len(found) == len(tasks), "every task has a sentence of its own"
    return found


@pytest.fixture
def make_collector() -> MakeCollector:
    def make(answer: Callable[[str, int], str]) -> tuple[Collector, ScriptedEngine]:
        tokenizer = load_tokenizer(DEMO_POLICY)
        engine = ScriptedEngine(tokenizer, answer)
        prompt = PromptConfig(name="standard", history_length=60, max_prompt_tokens=20_000)
        envs = LocalEnvs(EnvPool(AlfworldEnv))
        rollout = RolloutConfig(max_steps=12)
        return Collector(engine, envs, PromptBuilder(prompt, tokenizer), rollout), engine

    return make


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> WebShopConfig:
    root = tmp_path_factory.mktemp("shops") / "generated"
    make_shop(root, num_products=60, seed=2)
    return WebShopConfig(data_root=str(root))


@pytest.fixture(scope="session")
def goals(shop: WebShopConfig) -> tuple[Task, ...]:
    return source.list_tasks(shop, Path(shop.data_root), "test")[:2]


@pytest.fixture
def make_shopper(shop: WebShopConfig) -> MakeCollector:
    def make(answer: Callable[[str, int], str]) -> tuple[Collector, ScriptedEngine]:
        tokenizer = load_tokenizer(DEMO_POLICY)
        engine = ScriptedEngine(tokenizer, answer)
        builder = PromptBuilder(PromptConfig(), tokenizer, "webshop")
        envs = LocalEnvs(EnvPool(lambda: source.make_env(shop)))
        return Collector(engine, envs, builder, RolloutConfig(max_steps=3)), engine

    return make


def solver(plans: dict[str, list[str]], knows: Callable[[str], bool]) -> Callable[[str, int], str]:
    """Follows the plan of the prompt's own task where `knows(prompt)`, else looks around."""

    def answer(prompt: str, seed: int) -> str:
        if "Write one lesson" in prompt:
            return "<think>hm</think> Open the\nfridge first."
        own = prompt.rpartition("You are an expert agent")[2]
        goal = re.search(r"[Yy]our task is to: (.+?)\.?\n", own)
        assert goal is not None, own
        [plan] = [plan for text, plan in plans.items() if text.rstrip(".") == goal[1].rstrip(".")]
        taken = re.search(r"already taken (\d+) step", own)
        step = int(taken[1]) if taken else 0
        action = plan[step] if knows(prompt) and step < len(plan) else "look"
        return f"<think>so</think><action>{action}</action>"

    return answer
