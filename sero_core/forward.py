"""The forward pass of Qwen2 and Llama models, written out, with the same modules and parameters.

Two things differ from the library's own pass, and neither changes a result (test_forward.py
compares them): the last layer is computed only at the positions that are asked for, which saves a
fifth where layers are few and prompts long, and keys and values are handed to the caller, who
stores them in place. Other architectures take the library's pass (`supports` tells).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

FAMILIES = ("qwen2", "llama")

KeepKV = Callable[[int, torch.Tensor, torch.Tensor], None]
"""Receives the layer number, keys and values (B, KV heads, L, head size)."""

ExtendKV = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Receives new keys and values (B, KV heads, 1, head size), returns all (B, KV heads, K, ...)."""


def supports(model: PreTrainedModel) -> bool:
    """True if this file computes what the model computes: full attention, SiLU gates, RMS norms."""
    config = model.config
    layer_types = getattr(config, "layer_types", None) or ["full_attention"]
    return (
        config.model_type in FAMILIES
        and config.hidden_act == "silu"
        and set(layer_types) == {"full_attention"}
    )


def hidden_at(
    model: PreTrainedModel,
    ids_BL: torch.Tensor,
    position_BA: torch.Tensor,
    keep: KeepKV | None = None,
) -> torch.Tensor:
    """Final hidden states (B, A, H) at `position_BA` of right-padded rows, positions from 0.

    `keep` receives the keys and values of every layer for all L positions.
    """
    body: Any = model.base_model
    x = body.embed_tokens(ids_BL)
    position_1L = torch.arange(ids_BL.shape[1], device=ids_BL.device)[None]
    cos, sin = _rotation(body, x, position_1L)
    row_B1 = torch.arange(len(ids_BL), device=ids_BL.device)[:, None]
    for number, layer in enumerate(body.layers):
        attention = layer.self_attn
        h = _norm(x, layer.input_layernorm)
        k = _rotate(_heads(attention.k_proj(h), attention), cos, sin).transpose(1, 2)
        v = _heads(attention.v_proj(h), attention).transpose(1, 2)
        if keep is not None:
            keep(number, k, v)
        mask, q_cos, q_sin = None, cos, sin
        if number == len(body.layers) - 1:
            x, h = x[row_B1, position_BA], h[row_B1, position_BA]
            q_cos, q_sin = cos[0][position_BA], sin[0][position_BA]
            mask = position_1L[:, None, None, :] <= position_BA[:, None, :, None]
        q = _rotate(_heads(attention.q_proj(h), attention), q_cos, q_sin).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=mask is None,
            scale=attention.scaling,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        x = x + attention.o_proj(attended.transpose(1, 2).flatten(2))
        x = x + _mlp(_norm(x, layer.post_attention_layernorm), layer.mlp)
    return _norm(x, body.norm)


def next_hidden(
    model: PreTrainedModel,
    token_B: torch.Tensor,
    position_B: torch.Tensor,
    mask_BK: torch.Tensor,
    extend: ExtendKV,
) -> torch.Tensor:
    """Final hidden state (B, H) after one more token per row that sees the keys in `mask_BK`."""
    body: Any = model.base_model
    x = body.embed_tokens(token_B[:, None])
    cos, sin = _rotation(body, x, position_B[:, None])
    mask = mask_BK[:, None, None, :]
    for number, layer in enumerate(body.layers):
        attention = layer.self_attn
        h = _norm(x, layer.input_layernorm)
        q = _rotate(_heads(attention.q_proj(h), attention), cos, sin)
        k = _rotate(_heads(attention.k_proj(h), attention), cos, sin).transpose(1, 2)
        v = _heads(attention.v_proj(h), attention).transpose(1, 2)
        k, v = extend(number, k, v)
        # The query heads of one key head are its "positions": no copy of keys per query head.
        q = q.view(len(q), k.shape[1], -1, q.shape[-1])
        attended = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=attention.scaling
        )
        x = x + attention.o_proj(attended.reshape(len(q), 1, -1))
        x = x + _mlp(_norm(x, layer.post_attention_layernorm), layer.mlp)
    return _norm(x, body.norm)[:, 0]


def _rotation(
    body: Any,  # noqa: ANN401  (the library's body has no type)
    x: torch.Tensor,
    position_BL: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine (B, L, 1, head size / 2) of the rotary embedding."""
    cos, sin = body.rotary_emb(x, position_BL)
    half = cos.shape[-1] // 2
    return cos[..., None, :half], sin[..., None, :half]


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _heads(x: torch.Tensor, attention: Any) -> torch.Tensor:  # noqa: ANN401
    return x.unflatten(-1, (-1, attention.head_dim))


def _norm(x: torch.Tensor, norm: Any) -> torch.Tensor:  # noqa: ANN401
    return functional.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _mlp(x: torch.Tensor, mlp: Any) -> torch.Tensor:  # noqa: ANN401
    return mlp.down_proj(functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
