"""A model with learned positions, beside the tiny Qwen2 with rotary ones."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from sero_core.policy import Policy, make_policy
from tests.support.tiny import EOS, VOCAB, tiny_tokenizer


def tiny_gpt2(dropout: float = 0.0) -> Policy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = GPT2Config(
            vocab_size=VOCAB,
            n_positions=64,
            n_embd=16,
            n_layer=2,
            n_head=2,
            eos_token_id=EOS,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        )
        model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8.0 if parameter.ndim == 2 else 1.0)
    return make_policy(model, tiny_tokenizer())
