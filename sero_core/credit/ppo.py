"""PPO with a critic: GAE advantages, whitened over the batch (arXiv 1707.06347, 1506.02438)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sero_core.credit.base import Defaults, PenaltyField, Values
from sero_core.credit.gae import gae, whiten
from sero_core.credit.statistics import FloatArray
from sero_core.credit.table import Credits, EpisodeArrays, RowTable, row_table
from sero_core.sections import Part
from sero_core.types import Group, SeroError


class CriticConfig(Part):
    """A second model with the policy's architecture and a value head, and its own AdamW."""

    lr: float = Field(default=1e-5, gt=0, le=1, description="Learning rate of the critic")
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradient clipping")
    minibatch_rows: int = Field(default=256, ge=1, description="Rows per optimiser step")
    value_clip: float = Field(
        default=0.5, gt=0, description="Values move at most this far in one iteration's loss"
    )
    warmup_iterations: int = Field(
        default=0, ge=0, description="First iterations that train the critic alone"
    )


class PPO(Part):
    """Advantages by GAE from a critic's values, whitened over the iteration's whole batch.

    `level = "tokens"`, the form used in the literature: each answer is a sequence of its own whose
    last token carries the whole return of the episode; values are per token, not chained over
    steps. `level = "steps"`: the sequence is the episode's steps with their own rewards, one value
    per step, taken before its answer. An episode cut by the step limit counts as ended: the value
    after its last step is 0 (the literature's reading: a cut episode is a failure).
    Whitening is over answer tokens or steps. Episodes with a reward or value that is not finite
    stay out of all statistics and have advantage 0.
    """

    min_group_size: ClassVar[int] = 1
    defaults: ClassVar[Defaults] = {}

    name: Literal["ppo"] = "ppo"
    level: Literal["tokens", "steps"] = Field(
        default="tokens", description="GAE over the tokens of one answer, or over the steps"
    )
    penalty: PenaltyField = "return"
    gamma: float = Field(default=1.0, ge=0, le=1, description="Discount")
    lam: float = Field(default=1.0, ge=0, le=1, description="GAE's lambda")
    whiten: bool = Field(default=True, description="Whiten advantages over the batch")
    whiten_eps: float = Field(default=1e-8, gt=0, description="Added to the variance")
    critic: CriticConfig = CriticConfig()

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages and value targets in the layout of `values`.

        Errors: `SeroError` without values.
        """
        if values is None:
            raise SeroError("estimator ppo: expected the critic's values, got none")
        table = row_table(groups)
        rewards, predicted = self._sequences(table, values)
        values_BT, mask_BT = _pad(predicted)
        if not np.isfinite(values_BT).all():
            raise SeroError("estimator ppo: the critic's values are not finite")
        rewards_BT, _ = _pad(rewards)
        used_BT = mask_BT & np.isfinite(rewards_BT).all(axis=1, keepdims=True)
        advantages_BT, returns_BT = gae(
            np.where(used_BT, rewards_BT, 0.0), values_BT, used_BT, gamma=self.gamma, lam=self.lam
        )
        if self.level == "steps" and self.penalty == "row":
            penalties_BT, _ = _pad(table.by_episode(table.penalties_N))
            advantages_BT = np.where(used_BT, advantages_BT - penalties_BT, 0.0)
            returns_BT = np.where(used_BT, returns_BT - penalties_BT, 0.0)
        if self.whiten:
            advantages_BT = whiten(advantages_BT, used_BT, eps=self.whiten_eps)
        return Credits(
            advantages=self._layout(table, advantages_BT, mask_BT),
            metrics=table.common_metrics(advantages_BT[mask_BT]),
            returns=self._layout(table, np.where(used_BT, returns_BT, values_BT), mask_BT),
        )

    def _sequences(
        self, table: RowTable, values: Values
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Rewards and values of each sequence: an answer's tokens, or an episode's steps."""
        if self.level == "tokens":
            predicted = [np.asarray(part) for group in values for rows in group for part in rows]
            rewards = [np.zeros_like(part) for part in predicted]
            for reward, score in zip(rewards, table.scores(self.penalty), strict=True):
                reward[-1:] = score
            return rewards, predicted
        earned = table.rewards_N if self.penalty == "row" else table.rewards_N - table.penalties_N
        return table.by_episode(earned), [np.asarray(part) for group in values for part in group]

    def _layout(
        self, table: RowTable, values_BT: FloatArray, mask_BT: NDArray[np.bool_]
    ) -> list[list[EpisodeArrays]]:
        parts = [row[kept] for row, kept in zip(values_BT, mask_BT, strict=True)]
        if self.level == "steps":
            return table.layout(parts)
        rows = iter(parts)
        return [[[next(rows) for _ in range(n)] for n in group] for group in table.lengths]


def _pad(sequences: Sequence[FloatArray]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Sequences of any length as (B, T) with zeros behind them, and the mask of real entries."""
    longest = max((len(sequence) for sequence in sequences), default=0)
    padded = np.zeros((len(sequences), longest))
    mask = np.zeros((len(sequences), longest), dtype=bool)
    for index, sequence in enumerate(sequences):
        padded[index, : len(sequence)] = sequence
        mask[index, : len(sequence)] = True
    return padded, mask
