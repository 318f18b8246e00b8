"""S2: a weight holds strictly preceding actions, so the root's is 1 and none holds its own action.

With the current action inside, the rows that need learning most would be the ones that are
suppressed; with one action too few, the oracle's first mistake of compatibility would go unnoticed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import pytest

from sero_core.branch import Root
from sero_core.reachability import StepIngredients, WeightRule, reachability_weights
from sero_core.rows import oracle_rows
from tests.support.branches import ENVIRONMENTS, brancher_with, groups_of, trainer_of

PROBABILITIES = (0.5, 0.2, 0.9)
RULES: tuple[WeightRule, ...] = get_args(WeightRule)


@dataclass(frozen=True)
class Step:
    """An action of one token with the same compatibility `p` under every rule."""

    logprobs: tuple[float, ...]
    scored: tuple[bool, ...]
    greedy_logprob_mean: float
    admissible_logprobs: tuple[float, ...]
    admissible_index: int
    num_samples: int
    num_matches: float


def step(p: float) -> Step:
    others = (math.log(p), math.log1p(-p))
    return Step((-9.0, math.log(p)), (False, True), 0.0, others, 0, 99, 100 * p - 0.5)  # pyright: ignore


def steps(*probabilities: float) -> list[StepIngredients]:
    return [step(p) for p in probabilities]  # pyright: ignore


@pytest.mark.parametrize("rule", RULES)
def test_s02_three_steps_of_known_probabilities(rule: WeightRule) -> None:
    found = reachability_weights(steps(*PROBABILITIES), rule=rule, beta=1.0)
    assert [w.weight for w in found] == pytest.approx([1.0, 0.5, 0.5 * 0.2])
    assert [w.compatibility for w in found] == pytest.approx(PROBABILITIES)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_s02_an_action_changes_the_weights_after_it_and_no_other(
    rule: WeightRule, depth: int
) -> None:
    changed = list(PROBABILITIES)
    changed[depth] = 0.7
    before = reachability_weights(steps(*PROBABILITIES), rule=rule, beta=1.0)
    after = reachability_weights(steps(*changed), rule=rule, beta=1.0)
    for k in range(3):
        is_same = after[k].weight == pytest.approx(before[k].weight)
        assert is_same == (k <= depth), (k, depth)


def test_s02_the_trained_rows_of_a_real_branch_carry_exactly_these_weights() -> None:
    """From the logged log-probabilities of a real policy to the rows of the oracle loss."""
    trainer, groups = trainer_of(ENVIRONMENTS["alfworld"]), groups_of(ENVIRONMENTS["alfworld"])
    roots = [Root(episode, 0) for group in groups for episode in group.episodes]
    branches = brancher_with(trainer, keep_failed=True).branch_from(roots, seed=0, iteration=1)
    assert any(len(branch.steps) > 2 for branch in branches)
    for branch in branches:
        weight, expected = 1.0, []
        for item in branch.steps:
            expected.append(weight)
            span = [v for v, kept in zip(item.logprobs, item.scored, strict=True) if kept]
            weight *= math.exp(sum(span) / len(span))
        assert [row.weight for row in oracle_rows([branch])] == pytest.approx(expected)
        assert branch.effective_depth == pytest.approx(sum(expected))
