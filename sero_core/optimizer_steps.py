"""The optimiser, its minibatches and one clipped step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sero_core.policy import Policy
from sero_core.types import SeroError

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig


def make_optimizer(policy: Policy, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over all parameters of the policy, betas (0.9, 0.999), constant learning rate."""
    return torch.optim.AdamW(
        policy.model.named_parameters(), lr=config.lr, weight_decay=config.weight_decay
    )


def minibatches(
    num_rows: int, minibatch_rows: int, generator: np.random.Generator
) -> list[list[int]]:
    order = [int(row) for row in generator.permutation(num_rows)]
    return [order[start : start + minibatch_rows] for start in range(0, num_rows, minibatch_rows)]


def zero_grad(optimizer: torch.optim.AdamW) -> None:
    """Gradients become zeros, not None: a minibatch without signal is still one optimizer step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad.zero_()


def optimizer_step(policy: Policy, optimizer: torch.optim.AdamW, max_grad_norm: float) -> float:
    """Clip, check, step; returns the norm before clipping."""
    norm = float(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), max_grad_norm))
    if not np.isfinite(norm):
        raise SeroError(f"gradient norm is {norm}, expected a finite number; weights unchanged")
    optimizer.step()
    return norm
