"""Reachability weights: every rule by hand, ablations, what a rule needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.reachability import MissingIngredient, WeightRule, reachability_weights

RULES: tuple[WeightRule, ...] = get_args(WeightRule)


@dataclass(frozen=True)
class Step:
    """A branch step reduced to what the rules read."""

    logprobs: tuple[float, ...]
    scored: tuple[bool, ...]
    greedy_logprob_mean: float | None = None
    admissible_logprobs: tuple[float, ...] | None = None
    admissible_index: int | None = None
    num_samples: int | None = None
    num_matches: int | None = None


SCORED = (False, True, True)
STEPS = [
    Step((-9.0, -0.2, -0.4), SCORED, -0.1, (-0.6, -1.6, -2.6), 0, 3, 3),
    Step((-9.0, -1.0, -3.0), SCORED, -0.5, (-1.0, -4.0), 1, 3, 0),
    Step((-9.0, -0.1, -0.1), SCORED, -0.3, (-0.2, -0.2), 1, 3, 1),
]
COMPATIBILITIES: dict[WeightRule, list[float]] = {
    "lennorm": [math.exp(-0.3), math.exp(-2.0), math.exp(-0.1)],
    "seqprob": [math.exp(-0.6), math.exp(-4.0), math.exp(-0.2)],
    "relgreedy": [math.exp(-0.2), math.exp(-1.5), 1.0],
    "admissible": [1 / (1 + math.exp(-1) + math.exp(-2)), 1 / (1 + math.exp(3)), 0.5],
    "sampled": [3.5 / 4, 0.5 / 4, 1.5 / 4],
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_by_hand(rule: WeightRule) -> None:
    expected = COMPATIBILITIES[rule]
    for beta in (1.0, 2.5):
        steps = reachability_weights(STEPS, rule=rule, beta=beta)
        powers = [c**beta for c in expected]
        assert [step.compatibility for step in steps] == pytest.approx(powers)
        assert [step.weight for step in steps] == pytest.approx(
            [1.0, powers[0], powers[0] * powers[1]]
        )
        assert [step.logprob_mean for step in steps] == pytest.approx([-0.3, -2.0, -0.1])
        assert [step.logprob_sum for step in steps] == pytest.approx([-0.6, -4.0, -0.2])


def test_tau_flattens_the_softmax_over_admissible_actions() -> None:
    step = reachability_weights(STEPS, rule="admissible", beta=1.0, tau=2.0)[0]
    assert step.compatibility == pytest.approx(1 / (1 + math.exp(-0.5) + math.exp(-1)))
    flat = reachability_weights(STEPS, rule="admissible", beta=1.0, tau=100.0)
    assert flat[0].compatibility == pytest.approx(1 / 3, abs=0.01)
    far = replace(STEPS[0], admissible_logprobs=(-800.0, -900.0), admissible_index=1)
    assert reachability_weights([far], rule="admissible", beta=1.0)[0].compatibility > 0


@pytest.mark.parametrize("rule", RULES)
def test_beta_zero_is_the_uniform_ablation_and_needs_no_ingredient(rule: WeightRule) -> None:
    bare = [Step((-math.inf,), (True,)), Step((-math.inf,), (True,)), Step((-1.0,), (True,))]
    assert [s.weight for s in reachability_weights(bare, rule=rule, beta=0.0)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("relgreedy", "greedy_logprob_mean"),
        ("admissible", "admissible_logprobs"),
        ("sampled", "num_samples"),
    ],
)
def test_a_missing_ingredient_is_named(rule: WeightRule, name: str) -> None:
    bare = replace(STEPS[1], greedy_logprob_mean=None, admissible_logprobs=None, num_samples=None)
    steps = [STEPS[0], bare]
    with pytest.raises(MissingIngredient, match=f"branch step 1: rule {rule} needs {name}"):
        reachability_weights(steps, rule=rule, beta=1.0)


VALUES = st.floats(min_value=-50, max_value=0)


@st.composite
def branch_steps(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 10))):
        logprobs = tuple(draw(st.lists(VALUES, min_size=1, max_size=6)))
        commands = tuple(draw(st.lists(VALUES, min_size=1, max_size=6)))
        samples = draw(st.integers(1, 9))
        steps.append(
            Step(
                logprobs,
                (True,) * len(logprobs),
                draw(VALUES),
                commands,
                draw(st.integers(0, len(commands) - 1)),
                samples,
                draw(st.integers(0, samples)),
            )
        )
    return steps


@given(branch_steps(), st.floats(min_value=0, max_value=5), st.floats(min_value=0.05, max_value=20))
def test_weights_start_at_one_and_never_rise(steps: list[Step], beta: float, tau: float) -> None:
    for rule in RULES:
        weights = [s.weight for s in reachability_weights(steps, rule=rule, beta=beta, tau=tau)]
        assert weights[0] == 1.0
        assert all(a >= b >= 0 for a, b in pairwise(weights)), rule


def test_errors_name_the_step() -> None:
    fine, unscored = Step((-1.0,), (True,)), Step((-1.0,), (False,))
    with pytest.raises(ValueError, match="branch step 1: no scored token"):
        reachability_weights([fine, unscored], rule="lennorm", beta=1.0)
    with pytest.raises(ValueError, match="branch step 0: 2 logprobs but 1 mask"):
        reachability_weights([Step((-1.0, -1.0), (True,))], rule="lennorm", beta=1.0)
