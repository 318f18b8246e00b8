"""A random Qwen2 of a few thousand parameters with a word-level tokenizer, made on the spot."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from sero_core.policy import Policy, make_policy

VOCAB = 61
EOS = 2


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "<|im_end|>": 1, "<eos>": EOS} | {f"w{i}": i for i in range(3, VOCAB)}
    inner = Tokenizer(WordLevel(words, unk_token="w3"))
    inner.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>")


def tiny_policy(seed: int = 0, scale: float = 12.0, **changes: int) -> Policy:
    """Weights are scaled up so that the distributions are far from uniform."""
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    config = Qwen2Config(
        **(settings | changes), tie_word_embeddings=True, eos_token_id=EOS, bos_token_id=None
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(scale)
                elif parameter.ndim == 1 and not bool((parameter == 1).all()):
                    parameter.copy_(torch.randn_like(parameter) * 0.1)
    return make_policy(model, tiny_tokenizer())
