"""The written-out forward pass equals the library's, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from sero_core.engines.sessions import LibrarySession, WrittenSession
from sero_core.forward import hidden_at, supports
from sero_core.policy import Policy, make_policy
from tests.support.tiny import EOS, VOCAB, tiny_policy, tiny_tokenizer


def tiny_llama() -> Policy:
    """Biased projections and scaled rotary embeddings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        config = LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=8,
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=256,
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            eos_token_id=EOS,
            bos_token_id=None,
        )
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return make_policy(model, tiny_tokenizer())


MAKERS = [tiny_policy, tiny_llama]


def ids_and_positions() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    ids_BL = torch.randint(3, VOCAB, (5, 31), generator=generator)
    return ids_BL, torch.randint(31, (5, 4), generator=generator)


@pytest.mark.parametrize("make", MAKERS)
def test_values_and_gradients_equal_the_library(make: type[Policy]) -> None:
    policy = make()
    assert supports(policy.model)
    ids_BL, position_BA = ids_and_positions()
    row_B1 = torch.arange(5)[:, None]
    expected = policy.body(input_ids=ids_BL, use_cache=False).last_hidden_state[row_B1, position_BA]
    weight = torch.sin(torch.arange(expected.numel())).view_as(expected)
    (expected * weight).sum().backward()
    want = {
        name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None
    }
    policy.model.zero_grad()
    got = hidden_at(policy.model, ids_BL, position_BA)
    (got * weight).sum().backward()
    assert torch.allclose(got, expected, atol=1e-5, rtol=1e-5)
    for name, parameter in policy.model.named_parameters():
        if name in want:
            assert parameter.grad is not None, name
            assert torch.allclose(parameter.grad, want[name], atol=1e-4, rtol=1e-4), name


@pytest.mark.parametrize("make", MAKERS)
def test_both_sessions_agree_token_by_token(make: type[Policy]) -> None:
    policy = make()
    prompts = [(5,), (9, 4, 8), (7, 7, 3, 12, 30), (11, 6, 3, 5, 9, 20, 41)]
    written, library = WrittenSession(policy, 6), LibrarySession(policy)
    with torch.inference_mode():
        left, right = written.start(prompts), library.start(prompts)
        assert torch.allclose(left, right, atol=1e-5, rtol=1e-5)
        for step, rows in enumerate(([3, 1, 1, 0, 2], None, [0, 2, 4], None)):
            if rows is not None:
                written.select(torch.tensor(rows))
                library.select(torch.tensor(rows))
                count = len(rows)
            token_B = torch.arange(count) * 7 + step + 3
            left, right = written.advance(token_B), library.advance(token_B)
            assert torch.allclose(left, right, atol=1e-5, rtol=1e-5)


def test_other_attention_takes_the_library_pass() -> None:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    windowed = Qwen2Config(
        vocab_size=VOCAB,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=1,
        **shape,
        **heads,
    )
    assert not supports(Qwen2ForCausalLM(windowed))
    other = Qwen2Config(vocab_size=VOCAB, hidden_act="gelu", **shape, **heads)
    assert not supports(Qwen2ForCausalLM(other))
