"""The optimiser, its minibatches and one clipped step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sero_core.distributed import max_over_ranks, num_ranks, sum_gradients
from sero_core.policy import Policy
from sero_core.types import SeroError

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig


def make_optimizer(policy: Policy, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the policy's trained parameters (all, or the adapter's), betas (0.9, 0.999).

    Its group also holds `base_lr`, `warmup_steps` and `num_steps`, the steps taken so far, which
    are saved and restored with it, so that a resumed run is at the same place of its warm-up.
    """
    optimizer = torch.optim.AdamW(policy.trained, lr=config.lr, weight_decay=config.weight_decay)
    add_schedule(optimizer, config)
    return optimizer


def add_schedule(optimizer: torch.optim.AdamW, config: OptimizerConfig) -> None:
    """Start the warm-up of `optimizer_step`."""
    for group in optimizer.param_groups:
        group |= {"base_lr": config.lr, "warmup_steps": config.warmup_steps, "num_steps": 0}


def minibatches(
    num_rows: int, minibatch_rows: int, generator: np.random.Generator
) -> list[list[int]]:
    """This rank's rows of each optimiser step, in an order drawn from `generator`.

    `minibatch_rows` counts the rows of all ranks; each has an equal share of them. All ranks take
    as many steps as the one with the most rows, in the last of which others may have no row.
    """
    share = max(1, minibatch_rows // num_ranks())
    order = [int(row) for row in generator.permutation(num_rows)]
    (num_steps,) = max_over_ranks([float(-(-num_rows // share))])
    return [order[number * share : (number + 1) * share] for number in range(int(num_steps))]


def zero_grad(optimizer: torch.optim.AdamW) -> None:
    """Gradients become zeros, not None: a minibatch without signal is still one optimizer step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad.zero_()


def gradient_norm(policy: Policy) -> float:
    """L2 norm of the gradients as they are; call it after they are summed over the ranks."""
    gradients = [p.grad for _, p in policy.trained if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def optimizer_step(policy: Policy, optimizer: torch.optim.AdamW, max_grad_norm: float) -> float:
    """Sum gradients over the ranks, clip, check, warm up, step; returns the norm before clipping.

    Errors: `SeroError` for a norm that is not finite; the weights are unchanged then.
    """
    parameters = [parameter for _, parameter in policy.trained]
    sum_gradients(parameters)
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
    if not np.isfinite(norm):
        raise SeroError(f"gradient norm is {norm}, expected a finite number; weights unchanged")
    for group in optimizer.param_groups:
        group["num_steps"] += 1
        ramp = min(1.0, group["num_steps"] / max(group["warmup_steps"], 1))
        group["lr"] = group["base_lr"] * ramp
    optimizer.step()
    return norm
