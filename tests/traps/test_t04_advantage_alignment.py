"""T4: each token has its own advantage and weight, not its neighbour's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sero_core.batch import build_batch
from sero_core.forward import Passes
from sero_core.policy_gradient import accumulate_policy_gradient
from tests.support.rows import PLAIN, sampled_rows
from tests.support.tiny import tiny_policy


@pytest.mark.parametrize("is_packed", [False, True])
def test_t04_advantages_and_weights_are_aligned_with_their_tokens(is_packed: bool) -> None:
    """With a_t = t, w_t = 1 / t^2 and ratio 1: d loss / d logit of the sampled token is
    -a_t w_t (1 - p_t) / N, in the middle one of three rows."""
    policy = tiny_policy()
    rows = sampled_rows(policy, 3, advantages=(0.5, 1.0, -0.5))
    size = len(rows[1].token_ids)
    assert size > 4
    rows[1] = replace(rows[1], mask=tuple(i != 2 for i in range(size)))
    position_N = torch.arange(1.0, size + 1)
    batch = build_batch(rows)
    ones = [torch.ones(len(row.token_ids)) for row in rows]
    batch = replace(
        batch,
        advantages=(batch.advantages[0], position_N, batch.advantages[2]),
        weights=(ones[0], position_N**-2, ones[2]),
    )
    seen: list[torch.Tensor] = []

    def keep(_module: object, _args: object, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    handle = policy.head.register_forward_hook(keep)
    count = float(sum(len(row.token_ids) for row in rows) - 1)
    passes = Passes(4096, is_packed, 512)
    accumulate_policy_gradient(policy, batch, range(3), count, PLAIN, passes, ("policy",))
    handle.remove()
    (logits_NV,) = seen
    assert logits_NV.grad is not None
    lengths = [len(row.prompt_ids + row.token_ids) for row in rows]
    order = sorted(range(3), key=lambda row: -lengths[row])
    before = sum(len(rows[row].token_ids) for row in order[: order.index(1)])
    mine_NV = logits_NV.grad[before : before + size]
    got_N = mine_NV.gather(1, torch.tensor(rows[1].token_ids)[:, None])[:, 0]
    probability_N = torch.tensor(rows[1].old_logprobs).exp()
    kept_N = torch.tensor(rows[1].mask).float()
    want_N = -position_N * position_N**-2 * kept_N * (1 - probability_N) / count
    assert torch.allclose(got_N, want_N, atol=1e-5)
    assert float((want_N[1:] - want_N[:-1]).abs().max()) > 1e-3, "a shift would show"
