"""Reachability weights (SERO, arXiv 2610.19397; formula reconstructed, docs/methods.md).

    w_0 = 1,   w_k = prod_{j<k} c_j,   c_j = exp(beta * ell_j)

ell_j is the frozen behavior policy's log-probability of oracle action j given its own history: the
mean over the action span (`lennorm`) or the sum (`seqprob`). Weight k contains strictly preceding
actions only, so the root is always fully supervised and an action never suppresses itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StepWeight:
    """How one weight came about. `compatibility` is c_k; `weight` is w_k, which precedes it."""

    logprob_mean: float
    logprob_sum: float
    compatibility: float
    weight: float


def reachability_weights(
    logprobs: Sequence[Sequence[float]],
    scored: Sequence[Sequence[bool]],
    *,
    rule: Literal["lennorm", "seqprob"],
    beta: float,
) -> list[StepWeight]:
    """Weights of the K steps of one branch from plain floats: no gradient can flow through them.

    Args:
        logprobs: K lists of per-token natural logs under the behavior policy at temperature 1.
        scored: K masks of the action span, same lengths.
        rule: which ell_j.
        beta: inverse temperature; 0 gives weight 1 everywhere.

    Products are taken in log space (no underflow before the final exp).

    Errors: ValueError when a step has no scored token or lengths differ, naming the step.
    """
    weights: list[StepWeight] = []
    log_weight = 0.0
    for depth, (values, mask) in enumerate(zip(logprobs, scored, strict=True)):
        if len(values) != len(mask):
            raise ValueError(
                f"branch step {depth}: {len(values)} logprobs but {len(mask)} mask entries"
            )
        span = [value for value, is_scored in zip(values, mask, strict=True) if is_scored]
        if not span:
            raise ValueError(f"branch step {depth}: no scored token, so c_{depth} is undefined")
        total = math.fsum(span)
        mean = total / len(span)
        log_compatibility = 0.0 if beta == 0 else beta * (mean if rule == "lennorm" else total)
        weights.append(StepWeight(mean, total, math.exp(log_compatibility), math.exp(log_weight)))
        log_weight += log_compatibility
    return weights
