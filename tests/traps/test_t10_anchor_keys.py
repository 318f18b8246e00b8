"""T10: anchor groups that merge different states or split equal ones.

By text, "Nothing happens." is one anchor whatever was true; a key that held history or admissible
actions in another order would split what is equal. `anchor = "state"` is exact: over random walks
in real games, two rows have the same key if and only if they show the same, admit the same and the
same facts are true.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sero_core.credit.anchors import anchor_keys, anchor_labels
from sero_core.credit.gigpo import GiGPO
from sero_core.credit.table import row_table
from sero_core.envs import load_tasks, make_env
from sero_core.sections import AlfworldEnv, GeneratedGames
from sero_core.types import Environment, Episode, Group, Step, Task
from tests.support.episodes import episode_of, step_of

ENV = AlfworldEnv(games=GeneratedGames(seed=5, num_train=12, num_valid_seen=6, num_valid_unseen=6))
Truth = tuple[str, tuple[str, ...], frozenset[tuple[str, ...]]]


def walk(
    env: Environment, task: Task, rng: random.Random, index: int
) -> tuple[Episode, list[Truth]]:
    """25 random actions, a third of them nonsense; what was really so before each."""
    observation = env.reset(task)
    steps: list[Step] = []
    truths: list[Truth] = []
    for t in range(25):
        facts = env.facts()
        truths.append((observation.text, observation.admissible, facts))
        step = step_of(t, 10.0 * float(rng.random() < 0.1))
        steps.append(replace(step, observation=observation, snapshot=env.snapshot()))
        action = "sing" if rng.random() < 0.3 else rng.choice(observation.admissible)
        observation = env.step(action)
        if observation.is_terminated:
            break
    return replace(episode_of(0.0, 1, index), task=task, steps=tuple(steps)), truths


@pytest.fixture(scope="module")
def walks() -> tuple[Group, list[Truth]]:
    env, rng = make_env(ENV), random.Random(1)
    task = load_tasks(ENV, "train")[0]
    played = [walk(env, task, rng, index) for index in range(12)]
    env.close()
    truths = [truth for _, part in played for truth in part]
    return Group(task, tuple(episode for episode, _ in played)), truths


def test_t10_state_keys_are_equal_exactly_where_the_states_are(
    walks: tuple[Group, list[Truth]],
) -> None:
    group, truths = walks
    keys = anchor_keys(row_table([group]), "state")
    assert len(keys) == len(truths)
    same_key: dict[str, set[Truth]] = {}
    same_state: dict[Truth, set[str]] = {}
    for key, truth in zip(keys, truths, strict=True):
        same_key.setdefault(key, set()).add(truth)
        same_state.setdefault(truth, set()).add(key)
    assert max(len(states) for states in same_key.values()) == 1, "a key merges two states"
    assert max(len(keys) for keys in same_state.values()) == 1, "a state has two keys"
    assert len(same_state) < len(truths), "no state was visited twice: this test would be empty"


def test_t10_the_text_alone_merges_states(walks: tuple[Group, list[Truth]]) -> None:
    """The literature's key, kept as the default by name: what it merges is known."""
    group, truths = walks
    by_text: dict[str, set[Truth]] = {}
    for key, truth in zip(anchor_keys(row_table([group]), "observation"), truths, strict=True):
        by_text.setdefault(key, set()).add(truth)
    assert len(by_text["Nothing happens."]) > 1
    merged, exact = (GiGPO(anchor=key)([group]).metrics for key in ("observation", "state"))
    assert merged["credit/anchor_groups"] < exact["credit/anchor_groups"]


def test_t10_a_key_belongs_to_its_group_alone() -> None:
    labels = anchor_labels(["g", "h", "g"], ["kitchen", "kitchen", "kitchen"])
    assert labels.tolist() == [0, 1, 0]


def test_t10_text_keys_are_compared_as_they_are() -> None:
    texts = ["kitchen", "kitchen ", "Kitchen", "", "kitchen"]
    assert anchor_labels(["g"] * 5, texts).tolist() == [0, 1, 2, 3, 0]
