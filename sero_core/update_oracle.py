"""SERO's oracle rows: their own minibatches, clipping and optimiser steps (arXiv 2610.19397)."""

from __future__ import annotations

from collections.abc import Sequence
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
    passes = training_passes(policy, optim)
    total, counts = 0.0, 0.0
    norms: list[float] = []
    for rows in minibatches(len(batch), sero.minibatch_rows, generator):
        weights = batch.weights[rows]
        local = float(weights.sum()) if sero.normalizer == "sum_weights" else float(len(rows))
        count, total_weight = sum_over_ranks([local, float(weights.sum())])
        if total_weight == 0:
            continue
        zero_grad(optimizer)
        scale = sero.oracle_coef / count
        with torch.set_grad_enabled(sero.oracle_coef > 0):
            total += accumulate_oracle_gradient(policy, batch, rows, sero.normalizer, scale, passes)
        counts += count
        if sero.oracle_coef > 0:
            norms.append(optimizer_step(policy, optimizer, optim.max_grad_norm))
    (total,) = sum_over_ranks([total])
    return {
        "sero/oracle_loss": total / counts if counts else 0.0,
        "sero/grad_norm": float(np.mean(norms)) if norms else 0.0,
    }


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
