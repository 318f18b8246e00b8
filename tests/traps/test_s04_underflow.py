"""S4: products of many small probabilities neither underflow on the way nor divide by zero.

The probability of an action of 30 tokens is easily 1e-300; its power, its ratio and its softmax are
ordinary numbers, if they are computed in log space and in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch

from sero_core.batch import build_oracle_batch
from sero_core.optimizer_steps import make_optimizer
from sero_core.reachability import reachability_weights
from sero_core.sections import OptimizerConfig
from sero_core.sections_sero import SeroConfig
from sero_core.update_oracle import update_oracle_rows
from tests.support.rows import oracle_rows, weights
from tests.support.tiny import tiny_policy

NUM_TOKENS = 60


@dataclass(frozen=True)
class Step:
    """An action of 60 tokens, each of probability e^-30."""

    logprobs: tuple[float, ...] = (-30.0,) * NUM_TOKENS
    scored: tuple[bool, ...] = (True,) * NUM_TOKENS
    greedy_logprob_mean: float | None = -29.0
    admissible_logprobs: tuple[float, ...] | None = (-1800.0, -1801.0)
    admissible_index: int | None = 1
    num_samples: int | None = None
    num_matches: int | None = None


STEPS = [Step()] * 4


def test_s04_a_power_of_a_vanishing_probability_is_exact() -> None:
    found = reachability_weights(STEPS, rule="seqprob", beta=0.01)
    assert [s.weight for s in found] == pytest.approx([math.exp(-18.0 * k) for k in range(4)])


def test_s04_ratios_and_softmax_of_vanishing_probabilities_are_exact() -> None:
    found = reachability_weights(STEPS, rule="relgreedy", beta=1.0)
    assert [s.weight for s in found] == pytest.approx([math.exp(-k) for k in range(4)])
    found = reachability_weights(STEPS, rule="admissible", beta=1.0)
    chosen = 1 / (1 + math.exp(1))
    assert [s.weight for s in found] == pytest.approx([chosen**k for k in range(4)])


def test_s04_what_is_too_small_is_zero_and_never_rises_again() -> None:
    found = reachability_weights([*STEPS, Step((0.0,), (True,))], rule="seqprob", beta=1.0)
    assert [s.weight for s in found] == [1.0, 0.0, 0.0, 0.0, 0.0]
    long = reachability_weights([Step()] * 50, rule="lennorm", beta=0.5)
    assert all(a > b for a, b in pairwise(s.weight for s in long if s.weight > 0))
    assert len([s for s in long if s.weight > 0]) > 45, "15 nats a step: e^-735 is still a float64"


def test_s04_small_weights_keep_their_ratio_in_the_batch() -> None:
    """float32 would make both 0."""
    small = [replace(row, weight=1e-60 * (2 + i % 2)) for i, row in enumerate(oracle_rows())]
    batch = build_oracle_batch(small)
    assert batch is not None
    assert float(batch.weights[1] / batch.weights[0]) == pytest.approx(1.5)


@pytest.mark.parametrize("normalizer", ["sum_weights", "rows"])
def test_s04_rows_that_all_weigh_nothing_are_no_step_and_no_error(
    normalizer: Literal["sum_weights", "rows"],
) -> None:
    batch = build_oracle_batch([replace(row, weight=0.0) for row in oracle_rows()])
    policy = tiny_policy()
    assert batch is not None
    optim = OptimizerConfig(lr=0.1)
    optimizer, before = make_optimizer(policy, optim), weights(policy)
    sero = SeroConfig(normalizer=normalizer)
    found = update_oracle_rows(policy, optimizer, batch, sero, optim, np.random.default_rng(0))
    assert found == {"sero/oracle_loss": 0.0, "sero/grad_norm": 0.0}
    assert all(torch.equal(before[name], value) for name, value in weights(policy).items())
