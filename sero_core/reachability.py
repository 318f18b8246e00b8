"""Reachability weights (SERO, arXiv 2610.19397; formulas reconstructed, docs/methods.md).

    w_0 = 1,   w_k = prod_{j<k} c_j,   c_j = (compatibility of oracle action j)^beta

All numbers are the frozen behavior policy's, given the oracle's own history. Weight k contains
strictly preceding actions only, so the root is always fully supervised and an action never
suppresses itself. With S_j the action span, s_j = sum over S_j of log mu, and ell_j = s_j / |S_j|:

    lennorm     c_j = exp(beta ell_j)                                   geometric mean
    seqprob     c_j = exp(beta s_j)                                     probability of the text
    admissible  c_j = softmax_a(s_a / tau)[u_j] ^ beta                  among admissible actions
    relgreedy   c_j = min(1, exp(beta (ell_j - ell_greedy)))            to the greedy action
    sampled     c_j = ((m + 1/2) / (n + 1)) ^ beta                      m of n samples act alike

What a rule reads is logged with each step, so a stored branch can be weighted again under any rule
whose ingredients are there, without a model (`reweigh`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from sero_core.types import SeroError

WeightRule = Literal["lennorm", "seqprob", "admissible", "relgreedy", "sampled"]
T = TypeVar("T")


class MissingIngredient(SeroError):
    """A rule asks for a number that was not logged; the message names it and the step."""


class StepIngredients(Protocol):
    """What the rules read of one branch step, of a fresh one or of a stored one.

    `logprobs` are per token at temperature 1, `scored` marks the action span. `greedy_logprob_mean`
    is ell of the policy's greedy action in the same answer format, 0 where its answer had no valid
    action. `admissible_logprobs` are s_a of the admissible actions, each with the first token after
    its span (else "shelf 1" would count "shelf 10"), `admissible_index` the oracle action's place.
    `num_matches` of `num_samples` sampled answers name the oracle's action.
    """

    @property
    def logprobs(self) -> Sequence[float]: ...
    @property
    def scored(self) -> Sequence[bool]: ...
    @property
    def greedy_logprob_mean(self) -> float | None: ...
    @property
    def admissible_logprobs(self) -> Sequence[float] | None: ...
    @property
    def admissible_index(self) -> int | None: ...
    @property
    def num_samples(self) -> int | None: ...
    @property
    def num_matches(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class StepWeight:
    """How one weight came about. `compatibility` is c_k; `weight` is w_k, which precedes it."""

    logprob_mean: float
    logprob_sum: float
    compatibility: float
    weight: float


def reachability_weights(
    steps: Sequence[StepIngredients], *, rule: WeightRule, beta: float, tau: float = 1.0
) -> list[StepWeight]:
    """Weights of the K steps of one branch from plain floats: no gradient can flow through them.

    `beta` is an inverse temperature, 0 gives weight 1 everywhere; `tau` > 0 belongs to
    `admissible`. Products are taken in log space (no underflow before the final exp).
    Errors: ValueError when a step has no scored token or lengths differ, `MissingIngredient`; both
    name the step.
    """
    weights: list[StepWeight] = []
    log_weight = 0.0
    for depth, step in enumerate(steps):
        mean, total = span_logprobs(step.logprobs, step.scored, f"branch step {depth}")
        log_compatibility = 0.0
        if beta > 0:
            log_compatibility = beta * _log_compatibility(step, mean, total, rule, tau, depth)
        weights.append(StepWeight(mean, total, math.exp(log_compatibility), math.exp(log_weight)))
        log_weight += log_compatibility
    return weights


def span_logprobs(
    logprobs: Sequence[float], scored: Sequence[bool], name: str
) -> tuple[float, float]:
    """(mean, sum) of the log-probabilities of the scored tokens. Errors: ValueError with `name`."""
    if len(logprobs) != len(scored):
        raise ValueError(f"{name}: {len(logprobs)} logprobs but {len(scored)} mask entries")
    span = [value for value, is_scored in zip(logprobs, scored, strict=True) if is_scored]
    if not span:
        raise ValueError(f"{name}: no scored token, so its compatibility is undefined")
    total = math.fsum(span)
    return total / len(span), total


def _log_compatibility(
    step: StepIngredients, mean: float, total: float, rule: WeightRule, tau: float, depth: int
) -> float:
    """log c at beta 1; at most 0."""
    match rule:
        case "lennorm":
            return mean
        case "seqprob":
            return total
        case "relgreedy":
            greedy = _present(step.greedy_logprob_mean, rule, "greedy_logprob_mean", depth)
            return min(0.0, mean - greedy)
        case "sampled":
            num_samples = _present(step.num_samples, rule, "num_samples", depth)
            num_matches = _present(step.num_matches, rule, "num_matches", depth)
            return math.log((num_matches + 0.5) / (num_samples + 1))
        case "admissible":
            values = _present(step.admissible_logprobs, rule, "admissible_logprobs", depth)
            index = _present(step.admissible_index, rule, "admissible_index", depth)
            return _log_softmax_at([value / tau for value in values], index)


def _log_softmax_at(values: Sequence[float], index: int) -> float:
    top = max(values)
    if values[index] == -math.inf:
        return -math.inf
    return values[index] - top - math.log(math.fsum(math.exp(value - top) for value in values))


def _present(value: T | None, rule: WeightRule, name: str, depth: int) -> T:
    if value is None:
        raise MissingIngredient(
            f"branch step {depth}: rule {rule} needs {name}, which was not logged; "
            f'log it with sero.reachability.also_log = ["{rule}"]'
        )
    return value
