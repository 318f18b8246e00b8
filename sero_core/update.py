"""One update: clipped policy gradient on the policy rows, then the oracle rows in their own steps.

Losses are sums; this is the only place that divides, by the count of the whole minibatch. How a
minibatch is cut into microbatches therefore changes nothing (docs/correctness.md T16), and oracle
rows never enter the denominator of the policy loss (S6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sero_core.batch import Batch, OracleBatch, microbatches, pad
from sero_core.losses.policy import clipped_surrogate, entropy, k3
from sero_core.optimizer_steps import minibatches, optimizer_step, zero_grad
from sero_core.policy import Policy, log_softmax_at, logits_at
from sero_core.types import SeroError
from sero_core.update_oracle import update_oracle_rows

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig, PolicyLoss, SeroConfig


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
) -> dict[str, float]:
    """Train the policy in place: one pass over the policy rows, then one over the oracle rows.

    RL: minibatches of `optim.minibatch_rows` rows in an order drawn from `seed`; the loss is
    (surrogate + kl_coef k3 - entropy_coef H) summed over answer tokens, divided by the number of
    answer tokens of the whole minibatch. A row whose advantages are all 0 counts in that number,
    but its forward pass is skipped while kl_coef and entropy_coef are 0: its gradient is 0.
    Oracle: minibatches of `sero.minibatch_rows`, gradient of sum w * nll times `oracle_coef` / Z,
    own clipping and own AdamW step on the same optimizer state; `oracle_coef` 0 takes no step.

    Returns train/loss, train/clip_fraction, train/ratio_first_max (largest |ratio - 1| of the first
    minibatch, before any step), train/grad_norm (mean, before clipping), train/entropy (mean over
    the tokens that were computed), train/tokens, train/masked_tokens, train/kl if kl_coef > 0, and
    sero/oracle_loss and sero/grad_norm if there are oracle rows.
    Errors: `SeroError` for a gradient that is not finite, oracle rows without `sero`, kl_coef > 0
    without `reference`; `PolicyError` if the model is in training mode.
    """
    policy.require_eval_mode()
    if loss.kl_coef > 0 and reference is None:
        raise SeroError(f"kl_coef is {loss.kl_coef}, but there is no reference policy")
    if oracle_batch is not None and sero is None:
        raise SeroError(f"got {len(oracle_batch)} oracle rows, but no sero config")
    generator = np.random.default_rng(seed)
    metrics = _update_policy_rows(policy, optimizer, batch, loss, optim, reference, generator)
    if oracle_batch is not None and sero is not None:
        metrics |= update_oracle_rows(policy, optimizer, oracle_batch, sero, optim, generator)
    return metrics


def _update_policy_rows(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    loss: PolicyLoss,
    optim: OptimizerConfig,
    reference: Policy | None,
    generator: np.random.Generator,
) -> dict[str, float]:
    totals: dict[str, float] = {}
    ratio_first_max = 0.0
    norms: list[float] = []
    for number, rows in enumerate(minibatches(len(batch), optim.minibatch_rows, generator)):
        count = sum(int(batch.masks[row].sum()) for row in rows)
        if count == 0:
            continue
        zero_grad(optimizer)
        sums = accumulate_policy_gradient(
            policy, batch, rows, count, loss, optim.microbatch_tokens, reference
        )
        norms.append(optimizer_step(policy, optimizer, optim.max_grad_norm))
        ratio = sums.pop("ratio_max")
        ratio_first_max = ratio if number == 0 else ratio_first_max
        for key, value in sums.items():
            totals[key] = totals.get(key, 0.0) + value
    tokens = sum(int(mask.sum()) for mask in batch.masks)
    metrics = {
        "train/loss": totals.get("loss", 0.0) / max(tokens, 1),
        "train/clip_fraction": totals.get("clipped", 0.0) / max(tokens, 1),
        "train/ratio_first_max": ratio_first_max,
        "train/grad_norm": float(np.mean(norms)) if norms else 0.0,
        "train/entropy": totals.get("entropy", 0.0) / max(totals.get("computed", 0.0), 1.0),
        "train/tokens": float(tokens),
        "train/masked_tokens": float(sum(len(mask) for mask in batch.masks) - tokens),
    }
    if loss.kl_coef > 0:
        metrics["train/kl"] = totals.get("kl", 0.0) / max(tokens, 1)
    return metrics


def accumulate_policy_gradient(
    policy: Policy,
    batch: Batch,
    rows: Sequence[int],
    count: int,
    loss: PolicyLoss,
    microbatch_tokens: int,
    reference: Policy | None,
) -> dict[str, float]:
    """Add the gradient of one minibatch to the parameters' `grad`; `count` is its denominator.

    Returns sums over the minibatch's tokens: loss, clipped, entropy, kl, computed (tokens), and
    ratio_max (a maximum).
    """
    sums: dict[str, float] = dict.fromkeys(
        ("loss", "clipped", "entropy", "kl", "computed", "ratio_max"), 0.0
    )
    if loss.kl_coef == 0 and loss.entropy_coef == 0:
        rows = [row for row in rows if bool((batch.advantages[row] != 0).any())]
    lengths = [len(ids) for ids in batch.input_ids]
    for group in microbatches(lengths, rows, microbatch_tokens):
        part = _policy_microbatch(policy, batch, group, loss, reference, sums)
        (part / count).backward()
        sums["loss"] += float(part.detach())
    return sums


def _policy_microbatch(
    policy: Policy,
    batch: Batch,
    group: Sequence[int],
    loss: PolicyLoss,
    reference: Policy | None,
    sums: dict[str, float],
) -> torch.Tensor:
    """The summed loss of one microbatch with gradient; adds its metric sums to `sums`."""
    device = policy.device
    padded = pad(
        [batch.input_ids[row] for row in group], [batch.prompt_lens[row] for row in group], device
    )
    mask_N = torch.cat([batch.masks[row] for row in group]).to(device)
    temperature_N = batch.temperatures[list(group)].to(device)[padded.row_N]
    logits_NV = logits_at(policy, padded.input_ids_BL, padded.row_N, padded.position_N)
    logprobs_N = log_softmax_at(logits_NV, padded.target_N, temperature_N)
    surrogate = clipped_surrogate(
        logprobs_N,
        torch.cat([batch.old_logprobs[row] for row in group]).to(device),
        torch.cat([batch.advantages[row] for row in group]).to(device),
        mask_N,
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=loss.dual_clip,
    )
    total = surrogate.sum
    with torch.set_grad_enabled(loss.entropy_coef > 0):
        spread = entropy(logits_NV / temperature_N[:, None], mask_N)
    if loss.entropy_coef > 0:
        total = total - loss.entropy_coef * spread.sum
    if loss.kl_coef > 0 and reference is not None:
        with torch.no_grad():
            ref_NV = logits_at(reference, padded.input_ids_BL, padded.row_N, padded.position_N)
            ref_N = log_softmax_at(ref_NV, padded.target_N, temperature_N)
        divergence = k3(logprobs_N, ref_N, mask_N)
        total = total + loss.kl_coef * divergence.sum
        sums["kl"] += float(divergence.sum.detach())
    sums["entropy"] += float(spread.sum.detach())
    sums["computed"] += surrogate.count
    sums["clipped"] += surrogate.metrics["clipped"]
    sums["ratio_max"] = max(sums["ratio_max"], surrogate.metrics["ratio_max"])
    return total
