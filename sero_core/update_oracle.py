"""SERO's oracle rows (arXiv 2610.19397): their own optimiser steps, or a part of the base loss's.

The oracle loss is L_or = sum w nll / Z with Z of the whole mini-batch over all ranks; it never
enters the denominator of the policy loss, nor the other way round (docs/correctness.md S6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from sero_core.batch import OracleBatch
from sero_core.distributed import sum_over_ranks
from sero_core.forward import Passes, token_outputs, training_passes
from sero_core.losses.oracle import oracle_loss
from sero_core.optimizer_steps import minibatches, optimizer_step, zero_grad
from sero_core.policy import Policy

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig, SeroConfig


def update_oracle_rows(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: OracleBatch,
    sero: SeroConfig,
    optim: OptimizerConfig,
    generator: np.random.Generator,
) -> dict[str, float]:
    """One pass over the oracle rows in steps of their own, clipped by themselves.

    `optimizer` is the policy's (`own_step`), or one with moments of its own (`own_optimizer`). A
    mini-batch whose weights are all 0, and `oracle_coef` 0, take no step.
    Returns sero/oracle_loss and sero/grad_norm (mean, before clipping).
    """
    passes, tally = training_passes(policy, optim), _Tally()
    norms: list[float] = []
    for rows in minibatches(len(batch), sero.minibatch_rows, generator):
        zero_grad(optimizer)
        has_weight = _add_minibatch(policy, batch, rows, sero, passes, tally)
        if has_weight and sero.oracle_coef > 0:
            norms.append(optimizer_step(policy, optimizer, optim.max_grad_norm))
    return tally.metrics() | {"sero/grad_norm": float(np.mean(norms)) if norms else 0.0}


class JointOracle:
    """The oracle rows of an update, spread over the base loss's optimiser steps.

    `shares` are the rows of each step. Before a step `add_share` adds the gradient of the next one
    to what the base loss has left there; `add_rest` adds those whose step never came, as when no
    policy row of a mini-batch had a token.
    """

    def __init__(
        self,
        policy: Policy,
        batch: OracleBatch,
        sero: SeroConfig,
        passes: Passes,
        shares: Iterable[Iterable[int]],
    ) -> None:
        self._policy, self._batch, self._sero, self._passes = policy, batch, sero, passes
        self._shares = [[int(row) for row in share] for share in shares]
        self._tally = _Tally()

    def add_share(self) -> None:
        """Add the gradient of the next share. All ranks call it equally often."""
        self._add(self._shares.pop(0))

    def add_rest(self) -> bool:
        """Add the gradient of all that is left; whether it had any weight."""
        left = [row for share in self._shares for row in share]
        has_shares = bool(self._shares)
        self._shares = []
        return has_shares and self._add(left)

    def metrics(self) -> dict[str, float]:
        """sero/oracle_loss."""
        return self._tally.metrics()

    def _add(self, rows: Sequence[int]) -> bool:
        has_weight = _add_minibatch(
            self._policy, self._batch, rows, self._sero, self._passes, self._tally
        )
        return has_weight and self._sero.oracle_coef > 0


@dataclass(slots=True)
class _Tally:
    """Sums over mini-batches: w nll of this rank, and Z of all ranks."""

    total: float = 0.0
    count: float = 0.0

    def metrics(self) -> dict[str, float]:
        (total,) = sum_over_ranks([self.total])
        return {"sero/oracle_loss": total / self.count if self.count else 0.0}


def _add_minibatch(
    policy: Policy,
    batch: OracleBatch,
    rows: Sequence[int],
    sero: SeroConfig,
    passes: Passes,
    tally: _Tally,
) -> bool:
    """Add the gradient of oracle_coef / Z sum w nll; false where all weights of all ranks are 0."""
    weight = float(batch.weights[list(rows)].sum())
    local = weight if sero.normalizer == "sum_weights" else float(len(rows))
    count, total_weight = sum_over_ranks([local, weight])
    if total_weight == 0:
        return False
    with torch.set_grad_enabled(sero.oracle_coef > 0):
        tally.total += accumulate_oracle_gradient(
            policy, batch, rows, sero.normalizer, sero.oracle_coef / count, passes
        )
    tally.count += count
    return True


def accumulate_oracle_gradient(
    policy: Policy,
    batch: OracleBatch,
    rows: Sequence[int],
    normalizer: Literal["sum_weights", "rows"],
    scale: float,
    passes: Passes,
) -> float:
    """Add the gradient of `scale` * sum w * nll of these rows to `grad`; returns that sum.

    `scale` is oracle_coef / Z with Z of the whole minibatch. Rows of weight 0 are not computed.
    Without gradient mode (coefficient 0) only the sum is returned.
    """
    total = 0.0
    lengths = [len(ids) for ids in batch.input_ids]
    rows = [row for row in rows if float(batch.weights[row]) > 0]
    for group in passes.groups(lengths, rows):
        laid_out = passes.lay_out(
            [batch.input_ids[row] for row in group],
            [batch.prompt_lens[row] for row in group],
            policy.device,
        )
        outputs = token_outputs(
            policy,
            laid_out,
            torch.ones_like(laid_out.row_N, dtype=torch.float32),
            entropy="none",
            head_tokens=passes.head_tokens,
        )
        part = oracle_loss(
            outputs.logprobs_N,
            torch.cat([batch.scored[row] for row in group]).to(policy.device),
            laid_out.row_N,
            batch.weights[list(group)].to(policy.device),
            normalizer=normalizer,
        )
        if part.sum.requires_grad:
            (part.sum * scale).backward()
        total += float(part.sum.detach())
    return total
