"""Branches for tests, on every environment that has an oracle: with real policies, and with random
walks whose model is a formula, which is exact and takes no time.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from sero_core.branch import Brancher, Root
from sero_core.config import RunConfig, load_config
from sero_core.envs import make_env
from sero_core.prompts import PastStep, task_text
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.types import Branch, Completion, Episode, Group, Observation, Step, Task
from tests.support.scripted_engine import ScriptedEngine
from tests.support.train import TINY

ENVIRONMENTS = {"alfworld": TINY, "webshop": TINY.with_name("tiny_webshop.toml")}
"""A config of seconds for every environment that has an oracle."""


@cache
def trainer_of(path: Path) -> Trainer:
    """One per config and process; nothing in it may be changed."""
    return build_trainer(load_config(path))


@cache
def groups_of(path: Path) -> tuple[Group, ...]:
    """Episodes of the config's policy: two of two tasks."""
    trainer = trainer_of(path)
    return tuple(
        trainer.collector.collect(
            trainer.tasks[:2],
            group_size=2,
            sampling=training_sampling(trainer.config),
            seed=11,
            prefix="i1",
        )
    )


@cache
def walks_of(path: Path) -> tuple[Group, ...]:
    """Random walks that end like a policy's episodes: two of three tasks. No model."""
    trainer = trainer_of(path)
    return tuple(
        Group(task, tuple(_walk(trainer, task, f"i1g{place}e{index}", index) for index in range(2)))
        for place, task in enumerate(trainer.tasks[:3])
    )


def brancher_with(trainer: Trainer, **sero: object) -> Brancher:
    """The trainer's brancher under other `[sero]` settings."""
    assert trainer.brancher is not None
    data = trainer.config.model_dump()
    data["sero"] |= sero
    config = RunConfig.model_validate(data).sero
    assert config is not None
    return replace(trainer.brancher, config=config, oracle=config.oracle())


def exact_brancher(trainer: Trainer, **sero: object) -> Brancher:
    """As `brancher_with`, with a formula in the place of the model: greedy answers are `look`."""
    builder = trainer.collector.builder
    look = builder.render("look").token_ids
    engine = ScriptedEngine(
        lambda prompt, temperature, seed: look,
        builder.decode,
        lambda ids, place: -0.1 * (1 + ids[place] % 7),
    )
    return replace(brancher_with(trainer, **sero), engine=engine)


def branch_of(brancher: Brancher, episode: Episode, index: int) -> Branch:
    """The branch from a given step."""
    return brancher.branch_from([Root(episode, index)], seed=0, iteration=1)[0]


def _walk(trainer: Trainer, task: Task, episode_id: str, index: int) -> Episode:
    rng = random.Random(episode_id)
    builder = trainer.collector.builder
    env = make_env(trainer.config.env)
    observation = env.reset(task)
    goal, past, steps = task_text(observation.text), list[PastStep](), list[Step]()
    while len(steps) < trainer.config.rollout.max_steps and not observation.is_terminated:
        action = _random_action(observation, goal, rng)
        text = builder.render(action)
        steps.append(
            Step(
                index=len(steps),
                observation=observation,
                prompt_ids=builder.build(goal, past, observation).ids,
                completion=Completion(
                    text.token_ids, (-0.5,) * len(text.token_ids), text.text, False
                ),
                action=action,
                is_valid=True,
                is_admissible=True,
                reward=0.0,
                snapshot=env.snapshot(),
            )
        )
        past.append(PastStep(observation.text, action))
        observation = env.step(action)
    is_over = observation.is_terminated
    return Episode(
        episode_id, task, index, tuple(steps), observation, observation.is_won, not is_over
    )


def _random_action(observation: Observation, goal: str, rng: random.Random) -> str:
    action = rng.choice(observation.admissible)
    if action.startswith("search["):
        words = [word for word in goal.lower().split() if word.isalpha()]
        return f"search[{' '.join(rng.sample(words, min(3, len(words))))}]"
    return action
