"""Training rows from episodes and branches: one row is one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sero_core.batch import OracleRow, PolicyRow
from sero_core.credit.table import EpisodeArrays
from sero_core.types import Branch, Group


def policy_rows(
    groups: Sequence[Group],
    credits: Sequence[Sequence[EpisodeArrays]],
    temperature: float,
) -> list[PolicyRow]:
    """One row per policy step, in collection order, each step once. `credits[g][e]` are episode e's
    advantages: one per step (T,), or one array per step with a number per token.

    The trained ids are the sampled ids and the old log-probabilities the sampler's own.
    """
    return [
        PolicyRow(
            prompt_ids=step.prompt_ids,
            token_ids=step.completion.token_ids,
            advantage=_advantage(advantage),
            old_logprobs=step.completion.logprobs,
            temperature=temperature,
        )
        for group, arrays in zip(groups, credits, strict=True)
        for episode, values in zip(group.episodes, arrays, strict=True)
        for step, advantage in zip(episode.steps, values, strict=True)
    ]


def _advantage(value: np.float64 | NDArray[np.float64]) -> float | tuple[float, ...]:
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else float(value)


def oracle_rows(branches: Sequence[Branch]) -> list[OracleRow]:
    """One row per step of every branch that is trained on, with the weight of the loss: its
    reachability weight, but in a control study."""
    return [
        OracleRow(
            prompt_ids=step.prompt_ids,
            token_ids=step.token_ids,
            scored=step.scored if step.loss_mask is None else step.loss_mask,
            weight=step.weight if step.loss_weight is None else step.loss_weight,
        )
        for branch in branches
        if branch.is_trained
        for step in branch.steps
    ]
