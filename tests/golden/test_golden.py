"""Our formulas against figures of public reference implementations (origin named in each file)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sero_core.losses.policy import clipped_surrogate, k3

HERE = Path(__file__).parent
NO_DUAL_CLIP = 1e9


def figures(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    data = json.loads((HERE / name).read_text())
    return data["batches"], data["records"]


def records(name: str) -> list[Any]:
    batches, rows = figures(name)
    return [pytest.param(batches[row["batch"]], row, id=row["id"]) for row in rows]


def matrix(values: list[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("batch", "record"), records("ppo_token_mean.json"))
def test_clipped_loss_token_mean(batch: dict[str, Any], record: dict[str, Any]) -> None:
    params, out = record["params"], record["out"]
    logprobs_BL = matrix(batch["new_logp"]).requires_grad_()
    mask_BL = matrix(batch["response_mask"]).bool()
    if params.get("adv") == "adv_tok":
        advantages_BL = matrix(batch["adv_tok"])
    else:
        advantages_BL = matrix(batch["adv_row"])[:, None].expand_as(mask_BL)
    part = clipped_surrogate(
        logprobs_BL.flatten(),
        matrix(batch["old_logp"]).flatten(),
        advantages_BL.flatten(),
        mask_BL.flatten(),
        clip_low=params["clip_low"],
        clip_high=params["clip_high"],
        dual_clip=params.get("dual_clip", NO_DUAL_CLIP),
    )
    loss = part.sum / part.count
    (gradient_BL,) = torch.autograd.grad(loss, logprobs_BL)
    assert float(loss.detach()) == pytest.approx(out["loss"], rel=2e-7, abs=2e-7)
    np.testing.assert_allclose(gradient_BL.numpy(), np.array(out["grad"]), rtol=2e-7, atol=2e-7)
    if "clipfrac" in out:
        clipped = part.metrics["clipped"] / part.count
        assert clipped == pytest.approx(out["clipfrac"], abs=1e-7)


@pytest.mark.parametrize(("batch", "record"), records("k3.json"))
def test_k3(batch: dict[str, Any], record: dict[str, Any]) -> None:
    logprobs_N = matrix(batch["logp"]).requires_grad_()
    ref_N = matrix(batch["ref_logp"])
    every_N = torch.ones(len(ref_N), dtype=torch.bool)
    (gradient_N,) = torch.autograd.grad(k3(logprobs_N, ref_N, every_N).sum, logprobs_N)
    values = [
        float(k3(logprobs_N[i, None].detach(), ref_N[i, None], every_N[:1]).sum)
        for i in range(len(ref_N))
    ]
    out = record["out"]
    np.testing.assert_allclose(values, out["value"], rtol=2e-7, atol=2e-7)
    np.testing.assert_allclose(gradient_N.numpy(), out["grad"], rtol=2e-7, atol=2e-7)
