"""The gradient of one minibatch of policy rows: forward passes, the loss of every token, backward.

loss = (1 / denominator) aggregate(w surrogate + kl_coef KL - entropy_coef H), with the denominator
of the whole minibatch over all ranks (docs/losses.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from sero_core.batch import Batch, TokenRows
from sero_core.forward import Passes, TokenOutputs, token_outputs
from sero_core.losses.aggregate import aggregate
from sero_core.losses.kl import MAX_GAP, MAX_VALUE, kl_estimate
from sero_core.losses.policy import (
    MAX_LOG_RATIO,
    MAX_SEQUENCE_LOG_RATIO,
    TokenLoss,
    clipped_surrogate,
    sequence_log_ratio,
    token_log_ratio,
)
from sero_core.policy import Policy

if TYPE_CHECKING:
    from sero_core.config import PolicyLoss

LossTerm = Literal["policy", "kl", "entropy"]


@dataclass(slots=True)
class Totals:
    """Sums and maxima over tokens, added up over micro-batches, minibatches and ranks.

    Sums: `loss` (numerators), `entropy`, `kl`, `clipped`, `outside` (ratio outside of the clip
    band), `ratio`, `gap` (abs difference to the old log-probability), `computed` (tokens that went
    through the model). Maxima: `ratio_off` (largest abs ratio - 1), `gap`, `masked_grad` (largest
    gradient on a token outside the mask, which must be 0).
    """

    sums: dict[str, float] = field(default_factory=dict[str, float])
    maxima: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, sums: dict[str, torch.Tensor], maxima: dict[str, torch.Tensor]) -> None:
        """One transfer from the device for all of them."""
        together = (*sums.values(), *maxima.values())
        values = torch.stack([value.detach().double() for value in together]).tolist()
        for key, value in zip(sums, values[: len(sums)], strict=True):
            self.sums[key] = self.sums.get(key, 0.0) + value
        for key, value in zip(maxima, values[len(sums) :], strict=True):
            self.maxima[key] = max(self.maxima.get(key, 0.0), value)

    def merge(self, other: Totals) -> None:
        for key, value in other.sums.items():
            self.sums[key] = self.sums.get(key, 0.0) + value
        for key, value in other.maxima.items():
            self.maxima[key] = max(self.maxima.get(key, 0.0), value)


def loss_terms(loss: PolicyLoss) -> tuple[LossTerm, ...]:
    """The terms of the loss that have a weight."""
    terms: list[LossTerm] = ["policy"]
    if loss.kl_coef > 0 and loss.kl_in == "loss":
        terms.append("kl")
    if loss.entropy_coef > 0:
        terms.append("entropy")
    return tuple(terms)


def accumulate_policy_gradient(
    policy: Policy,
    batch: Batch,
    rows: Sequence[int],
    count: float,
    loss: PolicyLoss,
    passes: Passes,
    terms: Sequence[LossTerm],
) -> Totals:
    """Add the gradient of the `terms` of one minibatch's loss to the parameters' `grad`.

    `count` is the denominator of the whole minibatch. Rows whose advantages are all 0 count in it,
    but where the surrogate is the only term their gradient is 0 and they are not computed.
    """
    totals = Totals()
    if tuple(terms) == ("policy",):
        rows = [row for row in rows if bool((batch.advantages[row] != 0).any())]
    lengths = [len(ids) for ids in batch.input_ids]
    for group in passes.groups(lengths, rows):
        _microbatch(policy, batch, group, count, loss, passes, terms, totals)
    return totals


def _microbatch(
    policy: Policy,
    batch: Batch,
    group: Sequence[int],
    count: float,
    loss: PolicyLoss,
    passes: Passes,
    terms: Sequence[LossTerm],
    totals: Totals,
) -> None:
    device = policy.device
    rows = passes.lay_out(
        [batch.input_ids[row] for row in group], [batch.prompt_lens[row] for row in group], device
    )
    mask_N = _flat(batch.masks, group, device)
    outputs = token_outputs(
        policy,
        rows,
        batch.temperatures[list(group)].to(device)[rows.row_N],
        entropy="gradient" if "entropy" in terms else "value",
        head_tokens=passes.head_tokens,
    )
    old_N = _flat(batch.old_logprobs, group, device)
    surrogate = _surrogate(outputs, old_N, batch, group, mask_N, rows, loss)
    value_N = torch.zeros_like(outputs.logprobs_N)
    if "policy" in terms:
        weights_N = 1.0 if batch.weights is None else _flat(batch.weights, group, device)
        value_N = surrogate.loss_N * weights_N
    if "entropy" in terms:
        value_N = value_N - loss.entropy_coef * outputs.entropy_N
    divergence_N = _divergence(outputs, batch, group, loss)
    if "kl" in terms and divergence_N is not None:
        value_N = value_N + loss.kl_coef * divergence_N
    part = aggregate(
        value_N,
        mask_N,
        rows.row_N,
        len(group),
        mode=loss.aggregation,
        norm_length=loss.norm_length,
    )
    outputs.logprobs_N.retain_grad()
    if outputs.entropy_N.requires_grad:
        outputs.entropy_N.retain_grad()
    (part.sum / count).backward()
    _count(totals, part.sum, outputs, surrogate, divergence_N, old_N, mask_N, loss)


def _surrogate(
    outputs: TokenOutputs,
    old_N: torch.Tensor,
    batch: Batch,
    group: Sequence[int],
    mask_N: torch.Tensor,
    rows: TokenRows,
    loss: PolicyLoss,
) -> TokenLoss:
    is_clamped = loss.log_ratio == "clamped"
    if loss.ratio == "sequence":
        bound = MAX_SEQUENCE_LOG_RATIO if is_clamped else None
        log_ratio_N = sequence_log_ratio(
            outputs.logprobs_N, old_N, mask_N, rows.row_N, len(group), max_log_ratio=bound
        )
    else:
        bound = MAX_LOG_RATIO if is_clamped else None
        log_ratio_N = token_log_ratio(outputs.logprobs_N, old_N, max_log_ratio=bound)
    return clipped_surrogate(
        log_ratio_N,
        _flat(batch.advantages, group, old_N.device),
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=loss.dual_clip or None,
    )


def _divergence(
    outputs: TokenOutputs, batch: Batch, group: Sequence[int], loss: PolicyLoss
) -> torch.Tensor | None:
    if batch.ref_logprobs is None:
        return None
    is_clamped = loss.log_ratio == "clamped"
    return kl_estimate(
        outputs.logprobs_N,
        _flat(batch.ref_logprobs, group, outputs.logprobs_N.device),
        loss.kl_estimator,
        max_gap=MAX_GAP if is_clamped else None,
        max_value=MAX_VALUE if is_clamped else None,
    )


def _count(
    totals: Totals,
    numerator: torch.Tensor,
    outputs: TokenOutputs,
    surrogate: TokenLoss,
    divergence_N: torch.Tensor | None,
    old_N: torch.Tensor,
    mask_N: torch.Tensor,
    loss: PolicyLoss,
) -> None:
    ratio_N = surrogate.ratio_N
    is_outside_N = (ratio_N < 1.0 - loss.clip_low) | (ratio_N > 1.0 + loss.clip_high)
    gap_N = torch.where(mask_N, (outputs.logprobs_N.detach() - old_N).abs(), 0.0)
    differentiated = [v for v in (outputs.logprobs_N, outputs.entropy_N) if v.requires_grad]
    gradients = [v.grad.abs() for v in differentiated if v.grad is not None]
    masked_grad_N = torch.stack([torch.zeros_like(gap_N), *gradients]).amax(dim=0)
    sums = {
        "loss": numerator,
        "entropy": torch.where(mask_N, outputs.entropy_N, 0.0).sum(),
        "clipped": (surrogate.is_clipped_N & mask_N).sum(),
        "outside": (is_outside_N & mask_N).sum(),
        "ratio": torch.where(mask_N, ratio_N, 0.0).sum(),
        "gap": gap_N.sum(),
        "computed": mask_N.sum(),
    }
    if divergence_N is not None:
        sums["kl"] = torch.where(mask_N, divergence_N, 0.0).sum()
    maxima = {
        "ratio_off": torch.where(mask_N, (ratio_N - 1.0).abs(), 0.0).max(),
        "gap": gap_N.max(),
        "masked_grad": torch.where(mask_N, 0.0, masked_grad_N).max(),
    }
    totals.add(sums, maxima)


def _flat(
    values: Sequence[torch.Tensor], group: Sequence[int], device: torch.device
) -> torch.Tensor:
    """The rows' values behind each other (N,), in the order of the rows' answer tokens."""
    return torch.cat([values[row] for row in group]).to(device)
