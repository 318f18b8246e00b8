"""S9: no root at an episode's end, no branch past the step budget, no loss from a failed oracle.

Each of these cases is a logged branch with its reason and without a row in the oracle loss.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sero_core.branch import Brancher, Root
from sero_core.branching.roots import choose_roots
from sero_core.metrics import branch_metrics
from sero_core.rows import oracle_rows
from sero_core.sections_sero import RootRule
from sero_core.types import DeadEnd, Episode, Observation, OracleError, Prefix
from tests.support.branches import ENVIRONMENTS, branch_of, exact_brancher, trainer_of, walks_of
from tests.support.episodes import group_of

each_environment = pytest.mark.parametrize("config", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
RULES = ("disagree", "uniform", "failed_only", "first_divergence", "stratified")


@pytest.mark.parametrize("rule", RULES)
def test_s09_no_root_at_the_last_step(rule: str) -> None:
    group = group_of([0, 0, 0], [2, 3, 9])
    config = RootRule.model_validate({"rule": rule, "per_group": 3})
    seen: set[tuple[int, int]] = set()
    for seed in range(300):
        roots = choose_roots(group, config, lambda _, i: i > 0, random.Random(seed))
        seen |= {(root.episode.index, root.index) for root in roots}
    lengths = {episode.index: len(episode.steps) for episode in group.episodes}
    assert all(index < lengths[episode] - 1 for episode, index in seen)
    assert {episode for episode, _ in seen} == {0, 1, 2}


def failed_episode(config: Path) -> Episode:
    return next(e for group in walks_of(config) for e in group.episodes if e.is_truncated)


@each_environment
def test_s09_a_branch_keeps_the_episodes_step_budget(config: Path) -> None:
    """From the last step there is one step left, whatever `max_oracle_steps` says."""
    trainer, episode = trainer_of(config), failed_episode(config)
    max_steps = trainer.config.rollout.max_steps
    assert len(episode.steps) == max_steps
    for index in (max_steps - 1, max_steps - 2):
        branch = branch_of(exact_brancher(trainer, max_oracle_steps=500), episode, index)
        assert len(branch.steps) <= max_steps - index
        if branch.outcome != "won":
            assert branch.outcome == "budget"
            assert f"not won within {max_steps - index} step" in branch.reason
            assert not branch.is_trained
            assert oracle_rows([branch]) == []
    kept = exact_brancher(trainer, keep_failed=True)
    assert len(oracle_rows([branch_of(kept, episode, max_steps - 1)])) == 1


class Failing:
    """Acts `num_good` times as the first admissible action, then fails in a given way."""

    def __init__(self, num_good: int, failure: OracleError | str) -> None:
        self._left, self._failure = num_good, failure

    def start(self, prefix: Prefix) -> None:
        if self._left < 0 and isinstance(self._failure, OracleError):
            raise self._failure

    def act(self, observation: Observation) -> str:
        self._left -= 1
        if self._left >= 0:
            return next(a for a in observation.admissible if not a.startswith(("search", "click")))
        if isinstance(self._failure, OracleError):
            raise self._failure
        return self._failure


def failing(num_good: int, failure: OracleError | str) -> Brancher:
    brancher = exact_brancher(trainer_of(ENVIRONMENTS["alfworld"]))
    return type(brancher)(
        engine=brancher.engine,
        envs=brancher.envs,
        builder=brancher.builder,
        oracle=Failing(num_good, failure),
        config=brancher.config,
        sampling=brancher.sampling,
        max_steps=brancher.max_steps,
        success_reward=brancher.success_reward,
    )


@pytest.mark.parametrize("num_good", [-1, 0, 2])
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (OracleError("it gave up"), "oracle_error"),
        (DeadEnd("the mug is gone"), "dead_end"),
        ("fly to the moon", "oracle_error"),
    ],
)
def test_s09_an_oracle_that_fails_is_a_reason_and_no_loss(
    failure: OracleError | str, outcome: str, num_good: int
) -> None:
    """When it starts, at once, or after some steps."""
    branch = branch_of(failing(num_good, failure), failed_episode(ENVIRONMENTS["alfworld"]), 0)
    assert (branch.outcome, len(branch.steps)) == (outcome, max(num_good, 0))
    said = failure.reason if isinstance(failure, OracleError) else "fly to the moon"
    assert said in branch.reason
    assert not branch.is_trained
    assert oracle_rows([branch]) == []
    found = branch_metrics([branch])
    assert (found["sero/branches"], found["sero/branches_trained"]) == (1.0, 0.0)
    assert found["sero/oracle_errors"] == float(outcome == "oracle_error")


def test_s09_a_task_that_ends_without_a_win_ends_the_branch() -> None:
    """A purchase that is not the right one; the oracle is not asked any more."""
    config = ENVIRONMENTS["webshop"]
    trainer, groups = trainer_of(config), walks_of(config)
    asked: list[str] = []

    class Impulsive:
        """Searches, takes the first product and buys it."""

        def start(self, prefix: Prefix) -> None:
            pass

        def act(self, observation: Observation) -> str:
            if "click[buy now]" in observation.admissible:
                asked.append("click[buy now]")
            elif observation.admissible[0].startswith("search"):
                asked.append("search[red shirt]")
            else:
                shown = [a for a in observation.admissible if a.startswith("click[b0")]
                asked.append(shown[0] if shown else observation.admissible[-1])
            return asked[-1]

    brancher = exact_brancher(trainer)
    ends: set[str] = set()
    for group in groups:
        asked.clear()
        changed = type(brancher)(
            brancher.engine,
            brancher.envs,
            brancher.builder,
            Impulsive(),
            brancher.config,
            brancher.sampling,
            brancher.max_steps,
            brancher.success_reward,
        )
        branch = changed.branch_from([Root(group.episodes[0], 0)], seed=0, iteration=1)[0]
        assert len(branch.steps) == len(asked)
        ends.add(branch.outcome)
        if branch.outcome == "dead_end":
            assert "not won" in branch.reason
            assert not branch.is_trained
    assert "dead_end" in ends, ends
