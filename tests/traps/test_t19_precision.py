"""T19: logits and their softmax are float32 whatever the precision of the forward pass.

A bfloat16 logit of 40 is off by up to 0.125; over a vocabulary of 152,000 the log-probability is
worse.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sero_core.batch import build_batch, pad
from sero_core.forward import token_outputs
from sero_core.policy import log_softmax_at
from tests.support.rows import FULL, PLAIN, policy_gradient, run_update, sampled_rows
from tests.support.tiny import tiny_policy


@pytest.mark.parametrize("vocabulary", [1_000, 152_000])
def test_t19_log_softmax_is_accurate(vocabulary: int) -> None:
    """Within 1e-4 of float64 for logits up to +-40."""
    generator = torch.Generator().manual_seed(0)
    logits_NV = torch.rand((8, vocabulary), generator=generator) * 80 - 40
    target_N = torch.randint(vocabulary, (8,), generator=generator)
    temperature_N = torch.tensor([1.0, 0.4, 1.7, 1.0, 0.6, 2.0, 1.0, 1.0])
    got_N = log_softmax_at(logits_NV, target_N, temperature_N)
    exact_NV = torch.log_softmax(logits_NV.double() / temperature_N[:, None].double(), dim=-1)
    error_N = got_N - exact_NV.gather(1, target_N[:, None])[:, 0]
    assert got_N.dtype == torch.float32
    assert float(error_N.abs().max()) < 1e-4
    rough_NV = torch.log_softmax(logits_NV.bfloat16() / temperature_N[:, None].bfloat16(), dim=-1)
    rough_N = (rough_NV - exact_NV).gather(1, target_N[:, None])[:, 0]
    assert float(rough_N.abs().max()) > 1e-2, "the trap would show"


def test_t19_the_head_sees_float32_under_bfloat16() -> None:
    """Logits of +-40 from a bfloat16 body: the log-probabilities are those of the float64 softmax
    of the very same hidden states, to 1e-4."""
    policy = replace(tiny_policy(), dtype=torch.bfloat16)
    with torch.no_grad():
        policy.head.weight.mul_(12.0)  # pyright: ignore
    batch = build_batch(sampled_rows(policy))
    rows = pad(batch.input_ids, batch.prompt_lens, policy.device)
    states: list[torch.Tensor] = []
    handle = policy.head.register_forward_pre_hook(lambda _, args: states.append(args[0]))
    ones_N = torch.ones(len(rows.row_N))
    with torch.no_grad():
        outputs = token_outputs(policy, rows, ones_N, entropy="none", head_tokens=512)
    handle.remove()
    (hidden_NH,) = states
    assert hidden_NH.dtype == torch.float32
    logits_NV = hidden_NH.double() @ policy.head.weight.detach().double().T  # pyright: ignore
    assert float(logits_NV.abs().max()) > 20
    want_N = torch.log_softmax(logits_NV, dim=-1).gather(1, rows.target_N[:, None])[:, 0]
    assert float((outputs.logprobs_N - want_N).abs().max()) < 1e-4


def test_t19_weights_and_gradients_stay_float32() -> None:
    policy = replace(tiny_policy(), dtype=torch.bfloat16)
    reference = tiny_policy(seed=1)
    gradient = policy_gradient(policy, build_batch(sampled_rows(policy)), FULL, reference=reference)
    assert {value.dtype for value in gradient.values()} == {torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in policy.model.parameters())


def test_t19_the_share_out_of_the_clip_band_is_reported() -> None:
    """bfloat16 against float32 samples: some tokens leave a band of 0.1 %, none one of 20 %."""
    exact = tiny_policy(scale=4.0)
    rows = sampled_rows(exact, advantages=(1.0, -1.0))
    shares: dict[float, float] = {}
    for clip in (0.001, 0.2):
        policy = replace(tiny_policy(scale=4.0), dtype=torch.bfloat16)
        loss = PLAIN.model_copy(update={"clip_low": clip, "clip_high": clip})
        metrics = run_update(policy, build_batch(rows), loss=loss)
        shares[clip] = metrics["numerics/outside_clip_first"]
    assert shares[0.001] > 0.1
    assert shares[0.2] == 0.0
