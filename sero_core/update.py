"""One update: clipped policy gradient on the policy rows, then the oracle rows in their own steps.

Losses are sums; only here and in `policy_gradient.py` they are divided, by the denominator of the
whole minibatch over all ranks. How a minibatch is cut into micro-batches or spread over ranks
therefore changes nothing (docs/correctness.md T16), and oracle rows never enter the denominator of
the policy loss (S6).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sero_core.batch import NO_ORACLE_ROWS, Batch, OracleBatch
from sero_core.distributed import max_over_ranks, sum_gradients, sum_over_ranks
from sero_core.forward import Passes, training_passes
from sero_core.losses.aggregate import denominator
from sero_core.numerics import Panel
from sero_core.optimizer_steps import gradient_norm, minibatches, optimizer_step, zero_grad
from sero_core.policy import Policy
from sero_core.policy_gradient import accumulate_policy_gradient, loss_terms
from sero_core.prepare import prepare_batch
from sero_core.types import SeroError
from sero_core.update_oracle import JointOracle, update_oracle_rows

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig, PolicyLoss, SeroConfig

PROBE_ROWS = 64
"""Rows of the first minibatch on which the gradients of several loss terms are told apart."""


def update(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    oracle_batch: OracleBatch | None,
    *,
    loss: PolicyLoss,
    optim: OptimizerConfig,
    sero: SeroConfig | None,
    reference: Policy | None,
    seed: int,
    oracle_optimizer: torch.optim.AdamW | None = None,
) -> dict[str, float]:
    """Train the policy in place: `num_epochs` passes over the policy rows, then the oracle rows.

    RL: minibatches of `optim.minibatch_rows` rows in an order drawn from `seed`; the loss is that
    of docs/losses.md, divided by the denominator of the whole minibatch (the number of answer
    tokens for token-mean). A row whose advantages are all 0 counts in it, but its forward pass is
    skipped while KL and entropy have no weight in the loss: its gradient is 0.
    Oracle: minibatches of `sero.minibatch_rows`, gradient of sum w * nll times `oracle_coef` / Z,
    own clipping and own AdamW step, with `oracle_optimizer` where there is one; `oracle_coef` 0
    takes no step. With `joint` that gradient is added before the base loss's own steps instead.

    Returns train/loss, train/clip_fraction, train/grad_norm (mean, before clipping), train/entropy
    (mean over the tokens that were computed), train/tokens, train/lr, train/kl with KL in the loss,
    sero/oracle_loss and, in steps of their own, sero/grad_norm and time/update_oracle_s if there
    are oracle rows, and numerics/* (docs/numerics.md).
    Errors: `SeroError` for a gradient that is not finite, oracle rows without `sero`, kl_coef > 0
    without `reference`; `PolicyError` if the model is in training mode.
    """
    policy.require_eval_mode()
    if loss.kl_coef > 0 and reference is None:
        raise SeroError(f"kl_coef is {loss.kl_coef}, but there is no reference policy")
    if oracle_batch is not None and sero is None:
        raise SeroError(f"got {len(oracle_batch)} oracle rows, but no sero config")
    generator = np.random.default_rng(seed)
    passes = training_passes(policy, optim)
    batch, metrics = prepare_batch(policy, reference, batch, loss, passes)
    steps = [
        rows
        for _ in range(optim.num_epochs)
        for rows in minibatches(len(batch), optim.minibatch_rows, generator)
    ]
    (has_oracle_rows,) = max_over_ranks([float(oracle_batch is not None)])
    oracle_rows = oracle_batch or NO_ORACLE_ROWS
    joint = None
    if has_oracle_rows and sero is not None and sero.optimization == "joint":
        joint = _joint(policy, oracle_rows, sero, passes, len(steps), seed)
    metrics |= _update_policy_rows(policy, optimizer, batch, steps, loss, optim, passes, joint)
    if joint is not None:
        metrics |= joint.metrics()
    elif has_oracle_rows and sero is not None:
        started = time.monotonic()
        chosen = optimizer if oracle_optimizer is None else oracle_optimizer
        metrics |= update_oracle_rows(policy, chosen, oracle_rows, sero, optim, generator)
        metrics["numerics/grad_norm_oracle"] = metrics["sero/grad_norm"]
        metrics["time/update_oracle_s"] = time.monotonic() - started
    return metrics


def _joint(
    policy: Policy, rows: OracleBatch, sero: SeroConfig, passes: Passes, num_steps: int, seed: int
) -> JointOracle:
    """The oracle rows in a random order, spread over the base loss's steps."""
    # a generator of its own: the order of the policy rows is that of the base method
    order = np.random.default_rng((seed, 1)).permutation(len(rows))
    return JointOracle(policy, rows, sero, passes, np.array_split(order, num_steps or 1))


def _update_policy_rows(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    steps: Sequence[Sequence[int]],
    loss: PolicyLoss,
    optim: OptimizerConfig,
    passes: Passes,
    joint: JointOracle | None,
) -> dict[str, float]:
    """One optimiser step for each of `steps`, the rows of its minibatch."""
    terms, panel = loss_terms(loss), Panel(batch)
    for number, rows in enumerate(steps):
        tokens_B = [int(batch.masks[row].sum()) for row in rows]
        local = [denominator(tokens_B, loss.aggregation), float(sum(tokens_B))]
        count, tokens = sum_over_ranks(local)
        if tokens == 0:
            continue
        if number == 0 and len(terms) > 1:
            panel.norms = _term_norms(policy, optimizer, batch, rows, loss, passes)
        zero_grad(optimizer)
        totals = accumulate_policy_gradient(policy, batch, rows, count, loss, passes, terms)
        if joint is not None:
            joint.add_share()
        norm = optimizer_step(policy, optimizer, optim.max_grad_norm)
        panel.step(totals, count=count, tokens=tokens, norm=norm, is_first=number == 0)
    if joint is not None:
        zero_grad(optimizer)
        if joint.add_rest():
            optimizer_step(policy, optimizer, optim.max_grad_norm)
    return panel.metrics(loss, lr=float(optimizer.param_groups[0]["lr"]))


def _term_norms(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    rows: Sequence[int],
    loss: PolicyLoss,
    passes: Passes,
) -> dict[str, float]:
    """Gradient norm of each term of the loss alone, on the first `PROBE_ROWS` rows of a minibatch
    (a random sample: the order is drawn). Takes no step."""
    rows = rows[:PROBE_ROWS]
    tokens_B = [int(batch.masks[row].sum()) for row in rows]
    (count,) = sum_over_ranks([denominator(tokens_B, loss.aggregation)])
    norms: dict[str, float] = {}
    for term in loss_terms(loss):
        zero_grad(optimizer)
        accumulate_policy_gradient(policy, batch, rows, max(count, 1.0), loss, passes, (term,))
        sum_gradients(parameter for _, parameter in policy.trained)
        norms[term] = gradient_norm(policy)
    return norms
