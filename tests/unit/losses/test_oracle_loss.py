"""SERO's oracle loss by hand: weights per row, mean over the scored tokens, both denominators."""

from __future__ import annotations

import pytest
import torch

from sero_core.losses.oracle import oracle_loss

ROW_N = torch.tensor([0, 0, 0, 1, 1])
SCORED_N = torch.tensor([True, True, False, True, False])
WEIGHTS_B = torch.tensor([1.0, 0.25], dtype=torch.float64)


@pytest.mark.parametrize(("normalizer", "count"), [("sum_weights", 1.25), ("rows", 2.0)])
def test_values_and_gradient(normalizer: str, count: float) -> None:
    logprobs_N = torch.tensor([-1.0, -3.0, -50.0, -4.0, -60.0], requires_grad=True)
    part = oracle_loss(logprobs_N, SCORED_N, ROW_N, WEIGHTS_B, normalizer=normalizer)  # pyright: ignore
    assert part.count == count
    assert float(part.sum.detach()) == pytest.approx(1.0 * 2.0 + 0.25 * 4.0)
    assert part.metrics["nll"] == pytest.approx(2.0 + 4.0)
    (gradient_N,) = torch.autograd.grad(part.sum, logprobs_N)
    assert gradient_N.tolist() == pytest.approx([-0.5, -0.5, 0.0, -0.25, 0.0])
