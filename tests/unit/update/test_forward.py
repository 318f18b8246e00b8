"""The forward pass: chunks, layouts, recomputation, precision. None of them changes a number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_layers import GradientCheckpointingLayer

from sero_core.batch import build_batch, pack, pad
from sero_core.forward import Passes, score_rows, token_outputs
from sero_core.policy import Policy, PolicyError, open_policy, save_policy
from sero_core.sections import LoraConfig, PolicyConfig, PolicyLoss
from tests.support.rows import PASSES, PLAIN, distance, policy_gradient, sampled_rows
from tests.support.tiny import tiny_policy

FULL = PolicyLoss(kl_coef=0.05, entropy_coef=0.01)


class LargestTensor(TorchDispatchMode):
    """Counts the elements of every tensor that an operation makes, in forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        result = func(*args, **(kwargs or {}))
        found = result if isinstance(result, tuple | list) else (result,)
        sizes = [value.numel() for value in found if isinstance(value, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
def test_logits_of_all_tokens_never_exist_at_once(entropy_coef: float) -> None:
    """Vocabulary 4,000, 93 answer tokens, chunks of 8: nothing is larger than 8 x 4,000 but the
    output projection itself, forward and backward."""
    policy = tiny_policy(vocab_size=4000)
    rows = sampled_rows(policy, advantages=(1.0, -1.0))
    batch = build_batch(rows)
    tokens = sum(len(row.token_ids) for row in rows)
    assert tokens > 60
    loss = PolicyLoss(kl_coef=0.0, entropy_coef=entropy_coef)
    largest: dict[int, int] = {}
    gradient: dict[int, dict[str, torch.Tensor]] = {}
    for head_tokens in (8, 512):
        with LargestTensor() as seen:
            gradient[head_tokens] = policy_gradient(
                policy, batch, loss, replace(PASSES, head_tokens=head_tokens)
            )
        largest[head_tokens] = seen.elements
    head = 4000 * 16  # the projection's own weight (and gradient): vocabulary x hidden size
    assert largest[8] == max(8 * 4000, head)
    assert largest[512] == tokens * 4000 > 4 * largest[8]
    assert distance(gradient[8], gradient[512]) < 1e-5


@pytest.mark.parametrize("head_tokens", [1, 7, 512])
def test_chunks_change_no_value(head_tokens: int) -> None:
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    rows = pad(batch.input_ids, batch.prompt_lens, policy.device)
    temperature_N = torch.full((len(rows.row_N),), 0.8)
    arguments: dict[str, Any] = {"entropy": "gradient"}
    whole = token_outputs(policy, rows, temperature_N, head_tokens=10_000, **arguments)
    cut = token_outputs(policy, rows, temperature_N, head_tokens=head_tokens, **arguments)
    assert torch.allclose(cut.logprobs_N, whole.logprobs_N, atol=1e-6)
    assert torch.allclose(cut.entropy_N, whole.entropy_N, atol=1e-5)


def test_entropy_of_known_distributions() -> None:
    """The mean entropy of a uniform head is log V; without a gradient where none was asked for."""
    policy = tiny_policy()
    with torch.no_grad():
        policy.head.weight.zero_()  # pyright: ignore
    batch = build_batch(sampled_rows(policy, 3))
    rows = pack(batch.input_ids, batch.prompt_lens, policy.device)
    ones_N = torch.ones(len(rows.row_N))
    outputs = token_outputs(policy, rows, ones_N, entropy="value", head_tokens=512)
    assert outputs.entropy_N.tolist() == pytest.approx(
        [torch.tensor(61.0).log().item()] * len(ones_N)
    )
    assert outputs.logprobs_N.requires_grad
    assert not outputs.entropy_N.requires_grad


def opened(policy: Policy, tmp_path: Path, **changes: Any) -> Policy:  # noqa: ANN401
    save_policy(policy, tmp_path)
    return open_policy(PolicyConfig(path=str(tmp_path), **changes), None, 0)


@pytest.mark.parametrize("rank", [0, 4])
def test_checkpointed_layers_give_the_same_gradient_and_stay_in_eval_mode(
    tmp_path: Path, rank: int
) -> None:
    """With an adapter on a frozen base too, where the first layer's input needs no gradient."""
    policy, lora = tiny_policy(), LoraConfig(rank=rank)
    batch = build_batch(sampled_rows(policy))
    reference = tiny_policy(seed=1)
    plain = opened(policy, tmp_path, lora=lora)
    want = policy_gradient(plain, batch, FULL, reference=reference)
    checkpointed = opened(policy, tmp_path, lora=lora, gradient_checkpointing=True)
    runs: list[bool] = []

    def note(module: torch.nn.Module, *_: object) -> None:
        runs.append(any(child.training for child in module.children()))

    for module in checkpointed.model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.mlp.register_forward_pre_hook(note)  # pyright: ignore
    got = policy_gradient(checkpointed, batch, FULL, reference=reference)
    assert distance(got, want) < 1e-6
    assert len(runs) == 4, "two layers, once forward and once more backward"
    assert not any(runs)
    checkpointed.require_eval_mode()


def test_a_layer_with_dropout_of_its_own_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = tiny_policy()
    layer = next(m for m in policy.model.modules() if isinstance(m, GradientCheckpointingLayer))
    forward = type(layer).forward

    def with_dropout(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return torch.nn.functional.dropout(forward(self, *args, **kwargs), 0.5, self.training)

    monkeypatch.setattr(type(layer), "forward", with_dropout)
    with pytest.raises(PolicyError, match="dropout of its own"):
        opened(policy, tmp_path, gradient_checkpointing=True)


def test_the_trainers_attention_is_its_own() -> None:
    """Another kernel in the trainer's passes alone: same gradient, and the engine keeps its own."""
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    seen: list[str] = []

    def note(*_: object) -> None:
        seen.append(str(policy.model.config._attn_implementation))

    handle = policy.body.register_forward_pre_hook(note)
    for is_packed in (False, True):
        passes = replace(PASSES, is_packed=is_packed)
        want = policy_gradient(policy, batch, PLAIN, passes)
        got = policy_gradient(replace(policy, train_attention="eager"), batch, PLAIN, passes)
        assert distance(got, want) < 1e-5
    handle.remove()
    assert seen == ["sdpa", "eager"] * 2
    assert policy.model.config._attn_implementation == "sdpa"


def test_scores_are_those_of_the_library() -> None:
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    temperatures = [0.5 + 0.1 * i for i in range(len(batch))]
    for is_packed in (True, False):
        scores = score_rows(
            policy, batch.input_ids, batch.prompt_lens, temperatures, Passes(60, is_packed, 5)
        )
        for b, ids in enumerate(batch.input_ids):
            with torch.no_grad():
                logits_LV = policy.model(input_ids=ids[None]).logits[0, :-1] / temperatures[b]
            want_L = torch.log_softmax(logits_LV, dim=-1).gather(1, ids[1:, None])[:, 0]
            assert torch.allclose(scores[b], want_L[batch.prompt_lens[b] - 1 :], atol=1e-5)
