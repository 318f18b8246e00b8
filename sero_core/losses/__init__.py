"""Losses return `LossPart(sum, count, metrics)`; only `update()` divides, by a global count."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LossPart:
    """`sum` is a scalar tensor with gradient, `count` the weight behind it, `metrics` are sums."""

    sum: torch.Tensor
    count: float
    metrics: dict[str, float]
