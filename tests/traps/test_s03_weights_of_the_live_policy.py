"""S3: reachability weights belong to the frozen behavior policy and carry no gradient.

Weights taken from the live policy would change between two mini-batches of one update, and a
gradient through them would teach the policy to make its own supervision weaker.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sero_core.batch import OracleBatch, OracleRow, build_oracle_batch
from sero_core.losses.oracle import oracle_loss
from sero_core.optimizer_steps import add_schedule
from sero_core.policy import Policy
from sero_core.sections import OptimizerConfig
from sero_core.sections_sero import SeroConfig
from sero_core.types import SeroError
from sero_core.update_oracle import update_oracle_rows
from tests.support.tiny import tiny_policy

ROWS = [OracleRow((5, 6, 7 + i), (9 + i, 11, 4), (True, True, False), 0.5**i) for i in range(6)]
OPTIM = OptimizerConfig(lr=0.05, weight_decay=0.0, max_grad_norm=1e9)
SERO = SeroConfig(minibatch_rows=3)


class Recorder(torch.optim.AdamW):
    """AdamW that keeps the gradient of every step, and the weights it was taken at."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.model.named_parameters(), lr=OPTIM.lr)
        add_schedule(self, OPTIM)
        self.policy = policy
        self.seen: list[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []

    def step(self, closure: None = None) -> None:  # pyright: ignore
        parameters = dict(self.policy.model.named_parameters())
        gradients = {n: p.grad.clone() for n, p in parameters.items() if p.grad is not None}
        self.seen.append(({n: p.detach().clone() for n, p in parameters.items()}, gradients))
        super().step(closure)


def gradient_by_hand(policy: Policy, batch: OracleBatch, rows: list[int]) -> list[torch.Tensor]:
    """Of sum w nll / sum w, with the weights of the batch as they are."""
    policy.model.zero_grad()
    total = torch.zeros(())
    for row in rows:
        ids_L, start = batch.input_ids[row], batch.prompt_lens[row]
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids_L[None]).logits[0], dim=-1)
        chosen_L = logprobs_LV[start - 1 : -1].gather(1, ids_L[start:, None])[:, 0]
        total = total - float(batch.weights[row]) * chosen_L[batch.scored[row]].mean()
    (total / float(batch.weights[rows].sum())).backward()
    return [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]


def test_s03_a_step_does_not_change_the_weights_of_the_next_minibatch() -> None:
    policy, batch = tiny_policy(scale=4.0), build_oracle_batch(ROWS)
    assert batch is not None
    optimizer = Recorder(policy)
    update_oracle_rows(policy, optimizer, batch, SERO, OPTIM, np.random.default_rng(0))
    assert batch.weights.tolist() == [row.weight for row in ROWS]
    assert not batch.weights.requires_grad
    order = [int(row) for row in np.random.default_rng(0).permutation(len(ROWS))]
    (before, _), (after, got) = optimizer.seen
    assert max(float((before[n] - after[n]).abs().max()) for n in before) > 0.01, "a real step"
    policy.model.load_state_dict(after, strict=False)
    want = gradient_by_hand(policy, batch, order[3:])
    for name, mine, theirs in zip(got, got.values(), want, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5), name


def test_s03_a_weight_with_a_gradient_is_an_error() -> None:
    weights_B = torch.tensor([1.0, 0.5], requires_grad=True)
    with pytest.raises(SeroError, match="constants"):
        oracle_loss(
            torch.zeros(2),
            torch.tensor([True, True]),
            torch.tensor([0, 1]),
            weights_B,
            normalizer="sum_weights",
        )
