"""Folders of policies, their hash, stop tokens, and the precision of log-probabilities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from sero_core.policy import (
    PolicyError,
    clone_policy,
    load_policy,
    make_policy,
    save_policy,
    weights_hash,
)
from tests.support.tiny import tiny_policy, tiny_tokenizer


def test_a_saved_policy_loads_as_the_same_policy(tmp_path: Path) -> None:
    policy = tiny_policy()
    save_policy(policy, tmp_path / "a")
    loaded = load_policy(str(tmp_path / "a"), device="cpu")
    assert loaded.stop_ids == policy.stop_ids
    ids_BL = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        assert torch.equal(loaded.model(ids_BL).logits, policy.model(ids_BL).logits)
    save_policy(loaded, tmp_path / "b")
    assert weights_hash(tmp_path / "a") == weights_hash(tmp_path / "b")
    with torch.no_grad():
        next(loaded.model.parameters()).add_(1e-3)
    save_policy(loaded, tmp_path / "b")
    assert weights_hash(tmp_path / "a") != weights_hash(tmp_path / "b")


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"config\.json and \*\.safetensors"):
        load_policy(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    with pytest.raises(PolicyError, match="safetensors"):
        load_policy(str(tmp_path))
    with pytest.raises(PolicyError, match="float16"):
        load_policy("demo", "float16")
    with pytest.raises(PolicyError, match=r"no model\*\.safetensors"):
        weights_hash(tmp_path)


def test_sliding_windows_are_refused() -> None:
    """The engine's masks know full attention only; a window would be dropped without a word."""
    config = Qwen2Config(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=1,
    )
    with pytest.raises(PolicyError, match="sliding_attention"):
        make_policy(Qwen2ForCausalLM(config), tiny_tokenizer())


def test_a_clone_is_frozen_and_has_its_own_parameters() -> None:
    policy = tiny_policy()
    reference = clone_policy(policy)
    with torch.no_grad():
        next(policy.model.parameters()).add_(1.0)
    changed, kept = next(policy.model.parameters()), next(reference.model.parameters())
    assert not torch.equal(changed, kept)
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())


def test_the_shipped_policy_loads() -> None:
    policy = load_policy("demo", device="cpu")
    assert policy.stop_ids
    assert all(parameter.dtype == torch.float32 for parameter in policy.model.parameters())
