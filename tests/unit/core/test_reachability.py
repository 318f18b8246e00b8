"""Reachability weights: hand-worked branch, strict prefix, underflow, ablations."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.reachability import reachability_weights

LOGPROBS = [[-9.0, -0.2, -0.4], [-9.0, -1.0, -3.0], [-9.0, -0.1, -0.1]]
SCORED = [[False, True, True]] * 3


def test_s02_three_step_branch_by_hand() -> None:
    steps = reachability_weights(LOGPROBS, SCORED, rule="lennorm", beta=1.0)
    assert [step.weight for step in steps] == pytest.approx(
        [1.0, math.exp(-0.3), math.exp(-0.3 - 2.0)]
    )
    assert [step.compatibility for step in steps] == pytest.approx(
        [math.exp(-0.3), math.exp(-2.0), math.exp(-0.1)]
    )


def test_s02_an_action_never_enters_its_own_weight() -> None:
    changed = [LOGPROBS[0], [-9.0, -0.01, -0.01], LOGPROBS[2]]
    before = reachability_weights(LOGPROBS, SCORED, rule="lennorm", beta=1.0)
    after = reachability_weights(changed, SCORED, rule="lennorm", beta=1.0)
    assert before[1].weight == after[1].weight
    assert before[2].weight < after[2].weight


def test_sequence_probability_uses_the_sum() -> None:
    steps = reachability_weights(LOGPROBS, SCORED, rule="seqprob", beta=1.0)
    assert steps[1].weight == pytest.approx(math.exp(-0.6))
    assert steps[2].weight == pytest.approx(math.exp(-4.6))


def test_beta_zero_is_the_uniform_ablation() -> None:
    logprobs = [[-math.inf], [-math.inf], [-1.0]]
    steps = reachability_weights(logprobs, [[True]] * 3, rule="seqprob", beta=0.0)
    assert [step.weight for step in steps] == [1.0, 1.0, 1.0]


def test_s04_long_improbable_actions_underflow_to_zero_without_error() -> None:
    logprobs = [[-30.0] * 60] * 4
    steps = reachability_weights(logprobs, [[True] * 60] * 4, rule="seqprob", beta=1.0)
    assert [step.weight for step in steps][:1] == [1.0]
    assert steps[3].weight == 0.0


@given(
    st.lists(
        st.lists(st.floats(min_value=-50, max_value=0), min_size=1, max_size=8),
        min_size=1,
        max_size=12,
    ),
    st.floats(min_value=0, max_value=5),
)
def test_weights_start_at_one_and_never_rise(logprobs: list[list[float]], beta: float) -> None:
    masks = [[True] * len(values) for values in logprobs]
    for rule in ("lennorm", "seqprob"):
        steps = reachability_weights(logprobs, masks, rule=rule, beta=beta)
        weights = [step.weight for step in steps]
        assert weights[0] == 1.0
        assert all(a >= b for a, b in pairwise(weights))


def test_errors_name_the_step() -> None:
    with pytest.raises(ValueError, match="branch step 1: no scored token"):
        reachability_weights([[-1.0], [-1.0]], [[True], [False]], rule="lennorm", beta=1.0)
    with pytest.raises(ValueError, match="branch step 0: 2 logprobs but 1 mask"):
        reachability_weights([[-1.0, -1.0]], [[True]], rule="lennorm", beta=1.0)
