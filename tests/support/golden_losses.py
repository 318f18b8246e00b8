"""Each golden record of a loss as one call of ours: `replay(record, batch)` gives its outputs.

Matrices are (B, T) float64 with 0/1 masks; ours are flat (N,) with the row of each token.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from sero_core.losses.aggregate import EmptyRows, aggregate
from sero_core.losses.kl import kl_estimate
from sero_core.losses.mismatch import (
    ImportanceWeights,
    importance_weights,
    rejection_mask,
)
from sero_core.losses.policy import (
    TokenLoss,
    clipped_surrogate,
    sequence_log_ratio,
    token_log_ratio,
)
from sero_core.sections import Aggregation, KLEstimator, RejectionRule

FILES = ("ppo_loss", "kl", "gspo_tis")
Json = dict[str, Any]


def read(folder: Path, name: str) -> tuple[dict[str, Json], list[Json]]:
    """Batches by id, and the records of a file."""
    data = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    return data["batches"], data["records"]


def replay(record: Json, batch: Json) -> Json:
    """Our outputs under the record's own names (`loss_f32` and `f32_diff` are left out)."""
    return REPLAYS[record["fn"]](record["params"], batch)


class Tokens:
    """The (B, T) matrices of a batch, flat."""

    def __init__(self, batch: Json) -> None:
        self.batch = batch
        mask_BT = torch.tensor(batch["response_mask"]).bool()
        self.num_rows, self.length = mask_BT.shape
        self.mask_N = mask_BT.flatten()
        self.row_N = torch.arange(self.num_rows).repeat_interleave(self.length)

    def flat(self, name: str) -> torch.Tensor:
        values = torch.tensor(self.batch[name], dtype=torch.float64)
        if values.ndim == 1:
            values = values[:, None].expand(self.num_rows, self.length)
        return values.flatten().clone()

    def matrix(self, values_N: torch.Tensor) -> list[list[float]]:
        return values_N.view(self.num_rows, self.length).tolist()

    def mean(self, values_N: torch.Tensor) -> float:
        return float(values_N.double()[self.mask_N].mean())

    def gradient(self, loss: torch.Tensor, logprobs_N: torch.Tensor) -> Json:
        (gradient_N,) = torch.autograd.grad(loss, logprobs_N)
        return {"loss": float(loss.detach()), "grad": self.matrix(gradient_N)}

    def loss(
        self,
        values_N: torch.Tensor,
        mode: Aggregation,
        *,
        norm_length: int = 0,
        empty_rows: EmptyRows = "skip",
        count: float | None = None,
    ) -> torch.Tensor:
        part = aggregate(
            values_N,
            self.mask_N,
            self.row_N,
            self.num_rows,
            mode=mode,
            norm_length=norm_length,
            empty_rows=empty_rows,
        )
        return part.sum / (part.count if count is None else count)


def _trl_aggregation(params: Json, tokens: Tokens, values_N: torch.Tensor) -> torch.Tensor:
    kind = params["loss_type"]
    if kind == "dapo":
        return tokens.loss(values_N, "token-mean", count=params["num_items_in_batch"])
    if kind == "bnpo":
        return tokens.loss(values_N, "token-mean")
    if kind == "grpo":
        return tokens.loss(values_N, "seq-mean-token-mean", empty_rows="count")
    return tokens.loss(
        values_N,
        "seq-mean-token-sum-norm",
        norm_length=params["max_completion_length"],
        empty_rows="count",
    )


def trl(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    logprobs_N = tokens.flat("new_logp").requires_grad_()
    loss = clipped_surrogate(
        token_log_ratio(logprobs_N, tokens.flat("old_logp"), max_log_ratio=None),
        tokens.flat("adv_row"),
        clip_low=params["clip_low"],
        clip_high=params["clip_high"],
        dual_clip=params["delta"],
    )
    values_N = loss.loss_N
    if params["beta"]:
        divergence_N = kl_estimate(
            logprobs_N, tokens.flat("ref_logp"), "k3", max_gap=None, max_value=None
        )
        values_N = values_N + params["beta"] * divergence_N
    return tokens.gradient(_trl_aggregation(params, tokens, values_N), logprobs_N)


def trl_sequence_level(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    logprobs_N = tokens.flat("new_logp").requires_grad_()
    loss = _sequence_loss(tokens, logprobs_N, params, max_log_ratio=None)
    return tokens.gradient(_trl_aggregation(params, tokens, loss.loss_N), logprobs_N)


def verl_gspo(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    logprobs_N = tokens.flat("new_logp").requires_grad_()
    loss = _sequence_loss(tokens, logprobs_N, params, max_log_ratio=10.0)
    out = tokens.gradient(tokens.loss(loss.loss_N, "seq-mean-token-mean"), logprobs_N)
    return out | {"clipfrac": tokens.mean(loss.is_clipped_N)}


def _sequence_loss(
    tokens: Tokens, logprobs_N: torch.Tensor, params: Json, max_log_ratio: float | None
) -> TokenLoss:
    return clipped_surrogate(
        sequence_log_ratio(
            logprobs_N,
            tokens.flat("old_logp"),
            tokens.mask_N,
            tokens.row_N,
            tokens.num_rows,
            max_log_ratio=max_log_ratio,
        ),
        tokens.flat("adv_row"),
        clip_low=params["clip_low"],
        clip_high=params["clip_high"],
    )


def verl_vanilla(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    logprobs_N = tokens.flat("new_logp").requires_grad_()
    loss, log_ratio_N = _vanilla(tokens, logprobs_N, params, params["adv"])
    count = None
    if "dp_size" in params:  # gradients are averaged over ranks there, so the loss is times ranks
        is_token = params["agg"] == "token-mean"
        total = params["batch_num_tokens"] if is_token else params["global_batch_size"]
        count = total / params["dp_size"]
    mean = tokens.loss(
        loss.loss_N,
        cast(Aggregation, params["agg"]),
        norm_length=params.get("loss_scale_factor", tokens.length),
        count=count,
    )
    return tokens.gradient(mean, logprobs_N) | {
        "clipfrac": tokens.mean(loss.is_clipped_N),
        "clipfrac_lower": tokens.mean(loss.is_bounded_N),
        "ppo_kl": tokens.mean(-log_ratio_N.detach()),
    }


def verl_vanilla_tis(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    logprobs_N = tokens.flat("new_logp").requires_grad_()
    loss, log_ratio_N = _vanilla(tokens, logprobs_N, params, "adv_row")
    weights = _weights(tokens, params)
    mean = tokens.loss(loss.loss_N * weights.weights_N, cast(Aggregation, params["agg"]))
    return tokens.gradient(mean, logprobs_N) | {
        "clipfrac": tokens.mean(loss.is_clipped_N),
        "clipfrac_lower": tokens.mean(loss.is_bounded_N),
        "ppo_kl": tokens.mean(-log_ratio_N.detach()),
    }


def _vanilla(
    tokens: Tokens, logprobs_N: torch.Tensor, params: Json, advantages: str
) -> tuple[TokenLoss, torch.Tensor]:
    log_ratio_N = token_log_ratio(logprobs_N, tokens.flat("old_logp"))
    loss = clipped_surrogate(
        log_ratio_N,
        tokens.flat(advantages),
        clip_low=params["clip_low"],
        clip_high=params["clip_high"],
        dual_clip=params["dual_clip"],
    )
    return loss, log_ratio_N


def _bounds(threshold: float | str) -> tuple[float | None, float]:
    if isinstance(threshold, str) and "_" in threshold:
        low, high = threshold.split("_")
        return float(low), float(high)
    return None, float(threshold)


def _weights(tokens: Tokens, params: Json) -> ImportanceWeights:
    floor, cap = _bounds(params["threshold"])
    return importance_weights(
        tokens.flat("old_logp") - tokens.flat("rollout_logp"),
        tokens.mask_N,
        tokens.row_N,
        tokens.num_rows,
        level=params["level"],
        cap=cap,
        floor=floor,
        normalize=params.get("batch_normalize", False),
    )


def rollout_weights(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    weights = _weights(tokens, params)
    return {
        "weights": tokens.matrix(weights.weights_N),
        "rollout_is_mean": weights.mean,
        "rollout_is_eff_sample_size": weights.effective_size,
    }


def rollout_rejection(params: Json, batch: Json) -> Json:
    tokens = Tokens(batch)
    log_ratio_N = tokens.flat("old_logp") - tokens.flat("rollout_logp")
    kept_N = tokens.mask_N
    bounds = str(params["threshold"]).split(",")
    for rule, bound in zip(params["option"].split(","), bounds, strict=True):
        lower, upper = _bounds(bound)
        kept_N = kept_N & rejection_mask(
            log_ratio_N,
            tokens.mask_N,
            tokens.row_N,
            tokens.num_rows,
            rule=cast(RejectionRule, rule),
            upper=upper,
            lower=lower,
        )
    return {"mask": tokens.matrix(kept_N.double())}


def kl_penalty(params: Json, batch: Json) -> Json:
    logprobs_N = torch.tensor(batch["logp"], dtype=torch.float64, requires_grad=True)
    ref_N = torch.tensor(batch["ref_logp"], dtype=torch.float64)
    name = "k2" if params["estimator"] == "mse" else params["estimator"]
    value_N = kl_estimate(logprobs_N, ref_N, cast(KLEstimator, name))
    (gradient_N,) = torch.autograd.grad(value_N.sum(), logprobs_N)
    return {"value": value_N.tolist(), "grad": gradient_N.tolist()}


REPLAYS: dict[str, Callable[[Json, Json], Json]] = {
    "trl": trl,
    "trl_sequence_level": trl_sequence_level,
    "verl_vanilla": verl_vanilla,
    "verl_vanilla_tis": verl_vanilla_tis,
    "verl_gspo": verl_gspo,
    "rollout_weights": rollout_weights,
    "rollout_rejection": rollout_rejection,
    "kl_penalty": kl_penalty,
}
