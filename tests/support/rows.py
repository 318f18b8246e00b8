"""Rows to train on, the gradient that they give, and one update with plain settings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from sero_core.batch import Batch, OracleBatch, OracleRow, PolicyRow
from sero_core.engines.transformers import TransformersRuntime
from sero_core.forward import Passes
from sero_core.losses.aggregate import denominator
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy
from sero_core.policy_gradient import accumulate_policy_gradient, loss_terms
from sero_core.prepare import prepare_batch
from sero_core.sections import OptimizerConfig, PolicyLoss, TransformersEngine
from sero_core.sections_sero import SeroConfig
from sero_core.update import update
from tests.support.tiny import VOCAB

PASSES = Passes(4096, is_packed=False, head_tokens=512)
PLAIN = PolicyLoss(kl_coef=0.0)
FULL = PolicyLoss(kl_coef=0.05, entropy_coef=0.01)
OPTIM = OptimizerConfig(lr=1e-2, minibatch_rows=16, microbatch_tokens=4096)


def sampled_rows(
    policy: Policy,
    number: int = 16,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    advantages: Sequence[float] = (0.0, 1.3, -0.7),
) -> list[PolicyRow]:
    """Rows that the policy sampled itself, of 3 to 27 tokens, with advantages in turn."""
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


def rescored(policy: Policy, rows: list[PolicyRow]) -> list[PolicyRow]:
    """The rows with the policy's own teacher-forced log-probabilities."""
    scores = TransformersRuntime(TransformersEngine(), policy).score(
        [row.prompt_ids for row in rows], [row.token_ids for row in rows]
    )
    return [replace(row, old_logprobs=s) for row, s in zip(rows, scores, strict=True)]


def oracle_rows(seed: int = 0, number: int = 12) -> list[OracleRow]:
    """Random branch steps whose first and last answer token are not scored."""
    rng = random.Random(seed)
    rows: list[OracleRow] = []
    for _ in range(number):
        ids = tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(3, 9)))
        scored = (False, *(True for _ in ids[2:]), False)
        prompt = tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 20)))
        rows.append(OracleRow(prompt, ids, scored, rng.random()))
    return rows


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.model.state_dict().items()}


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


def run_update(
    policy: Policy,
    batch: Batch,
    oracle: OracleBatch | None = None,
    **changes: Any,  # noqa: ANN401
) -> dict[str, float]:
    """One `update` with AdamW at lr 1e-2 and a new optimizer, unless `changes` say otherwise."""
    arguments: dict[str, Any] = {
        "loss": PLAIN,
        "optim": OPTIM,
        "sero": SeroConfig(minibatch_rows=5),
        "reference": None,
        "seed": 3,
    } | changes
    optimizer = arguments.pop("optimizer", None) or make_optimizer(policy, arguments["optim"])
    return update(policy, optimizer, batch, oracle, **arguments)


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Largest difference, as a share of the largest entry of `right`."""
    assert left.keys() == right.keys()
    scale = max(float(value.abs().max()) for value in right.values())
    return max(float((value - right[name]).abs().max()) for name, value in left.items()) / scale
