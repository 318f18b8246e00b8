"""S1: a restore is exact, in every environment, with and without the in-process shortcut.

Hidden state is what breaks it: an engine's memory, a session, an oracle that remembers the branch
before. A restored state must show the same, allow the same and go on in the same way, and a branch
must not depend on which branches were executed before it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.branch import Root
from sero_core.envs import make_env
from sero_core.metrics import branch_metrics
from sero_core.types import Environment, Episode, Observation, RestoreMismatch, Snapshot
from tests.support.branches import ENVIRONMENTS, branch_of, exact_brancher, trainer_of, walks_of

NUM_FUTURE = 10
Moment = tuple[Observation, str, frozenset[tuple[str, ...]]]

each_environment = pytest.mark.parametrize("config", ENVIRONMENTS.values(), ids=ENVIRONMENTS)


def episodes_of(config: Path) -> list[Episode]:
    return [episode for group in walks_of(config) for episode in group.episodes]


def moment(env: Environment, observation: Observation) -> Moment:
    return observation, env.snapshot().state_hash, env.facts()


def transcript(env: Environment, observation: Observation, seed: int) -> list[Moment]:
    """What is shown now, and after each of ten random actions, some of them inadmissible."""
    rng = random.Random(seed)
    seen = [moment(env, observation)]
    for _ in range(NUM_FUTURE):
        if observation.is_terminated:
            break
        offered = (*observation.admissible, "dance")
        observation = env.step(rng.choice(offered))
        seen.append(moment(env, observation))
    return seen


def without_handle(snapshot: Snapshot) -> Snapshot:
    return Snapshot(snapshot.task_id, snapshot.actions, snapshot.state_hash)


@each_environment
def test_s01_a_restored_state_goes_on_as_the_recorded_one(config: Path) -> None:
    recorded, restored = (make_env(trainer_of(config).config.env) for _ in range(2))
    num_states = 0
    for episode in episodes_of(config):
        for step in episode.steps[:: max(1, len(episode.steps) // 3)]:
            observation = recorded.reset(episode.task)
            for action in step.snapshot.actions:
                observation = recorded.step(action)
            assert observation == step.observation
            expected = transcript(recorded, observation, step.index)
            for snapshot in (step.snapshot, without_handle(step.snapshot)):
                restored.reset(episode.task)
                transcript(restored, restored.step("look"), 99)  # whatever was there before
                observation = restored.restore(snapshot)
                assert transcript(restored, observation, step.index) == expected
            num_states += 1
    assert num_states >= 12
    for env in (recorded, restored):
        env.close()


@each_environment
def test_s01_a_wrong_state_is_noticed(config: Path) -> None:
    """A hash of nothing, and the actions that lead to another state of the episode."""
    env = make_env(trainer_of(config).config.env)
    num_others = 0
    for episode in episodes_of(config):
        env.reset(episode.task)
        good = without_handle(episode.steps[1].snapshot)
        env.restore(good)
        with pytest.raises(RestoreMismatch, match="expected " + "0" * 32):
            env.restore(replace(good, state_hash="0" * 32))
        for other in (step.snapshot for step in episode.steps):
            if other.state_hash != good.state_hash:
                with pytest.raises(RestoreMismatch, match=good.state_hash):
                    env.restore(replace(good, actions=other.actions))
                num_others += 1
    assert num_others > 2
    env.close()


@each_environment
def test_s01_a_branch_says_that_its_root_could_not_be_restored(config: Path) -> None:
    trainer, episode = trainer_of(config), episodes_of(config)[0]
    step = episode.steps[1]
    wrong = replace(step, snapshot=replace(step.snapshot, state_hash="0" * 32))
    damaged = replace(episode, steps=(episode.steps[0], wrong, *episode.steps[2:]))
    branch = branch_of(exact_brancher(trainer), damaged, 1)
    assert (branch.outcome, branch.steps, branch.is_trained) == ("restore_mismatch", (), False)
    assert "expected " + "0" * 32 in branch.reason
    assert branch_metrics([branch])["sero/restore_mismatches"] == 1.0
    fine = branch_of(exact_brancher(trainer), episode, 1)
    assert fine.restored_hash == fine.root_hash == step.snapshot.state_hash


@each_environment
def test_s01_a_branch_does_not_depend_on_those_before_it(config: Path) -> None:
    """Neither the oracle's memory nor the environment's state is carried over."""
    trainer = trainer_of(config)
    roots = [Root(episode, 1) for episode in episodes_of(config) if len(episode.steps) > 2]
    assert len(roots) > 2
    together = exact_brancher(trainer).branch_from(roots, seed=0, iteration=1)
    reverse = exact_brancher(trainer).branch_from(roots[::-1], seed=0, iteration=1)[::-1]
    assert together == reverse
    for root, branch in zip(roots, together, strict=True):
        alone = branch_of(exact_brancher(trainer), root.episode, root.index)
        assert [step.action for step in alone.steps] == [step.action for step in branch.steps]
        assert (alone.outcome, alone.reason) == (branch.outcome, branch.reason)
