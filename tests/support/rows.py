"""Rows to train on, and the gradient that they give."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from sero_core.batch import Batch, PolicyRow
from sero_core.engines.transformers import TransformersRuntime
from sero_core.forward import Passes
from sero_core.losses.aggregate import denominator
from sero_core.policy import Policy
from sero_core.policy_gradient import accumulate_policy_gradient, loss_terms
from sero_core.prepare import prepare_batch
from sero_core.sections import PolicyLoss, TransformersEngine
from tests.support.tiny import VOCAB

PASSES = Passes(4096, is_packed=False, head_tokens=512)


def sampled_rows(
    policy: Policy,
    number: int = 16,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    advantages: Sequence[float] = (0.0, 1.3, -0.7),
) -> list[PolicyRow]:
    """Rows that the policy sampled itself, of 3 to 28 tokens, with advantages in turn."""
    rng = random.Random(seed)
    prompts = [
        tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 20))) for _ in range(number)
    ]
    done = TransformersRuntime(TransformersEngine(), policy).generate(
        prompts, temperature=temperature, max_new_tokens=8, seeds=range(number)
    )
    return [
        PolicyRow(prompt, c.token_ids, advantages[i % len(advantages)], c.logprobs, temperature)
        for i, (prompt, c) in enumerate(zip(prompts, done, strict=True))
    ]


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}


def policy_gradient(
    policy: Policy,
    batch: Batch,
    loss: PolicyLoss,
    passes: Passes = PASSES,
    reference: Policy | None = None,
) -> dict[str, torch.Tensor]:
    """Of the whole batch as one minibatch."""
    policy.model.zero_grad()
    batch, _ = prepare_batch(policy, reference, batch, loss, passes)
    count = denominator([int(mask.sum()) for mask in batch.masks], loss.aggregation)
    rows = range(len(batch))
    accumulate_policy_gradient(policy, batch, rows, count, loss, passes, loss_terms(loss))
    return gradients(policy)


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Largest difference, as a share of the largest entry of `right`."""
    assert left.keys() == right.keys()
    scale = max(float(value.abs().max()) for value in right.values())
    return max(float((value - right[name]).abs().max()) for name, value in left.items()) / scale
