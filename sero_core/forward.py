"""Log-probabilities of given tokens: the one forward pass of trainer, scorer and reference.

The body of the model runs on whole rows, the output projection on answer tokens alone and in
chunks, each recomputed in the backward pass, so that a (tokens, vocabulary) tensor of all answer
tokens never exists. Logits and their softmax are float32 always (docs/correctness.md T19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch.utils.checkpoint import checkpoint

from sero_core.batch import TokenRows, microbatches, pack, pad
from sero_core.policy import Policy, log_softmax

if TYPE_CHECKING:
    from sero_core.config import OptimizerConfig

EntropyMode = Literal["none", "value", "gradient"]


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """Per answer token (N,), float32: log-probability, and entropy in nats over the whole
    vocabulary (zeros where it was not asked for), both at the token's temperature."""

    logprobs_N: torch.Tensor
    entropy_N: torch.Tensor


@dataclass(frozen=True, slots=True)
class Passes:
    """How rows go through the model: tokens per pass, layout, tokens whose logits exist at once."""

    max_tokens: int
    is_packed: bool
    head_tokens: int

    def groups(self, lengths: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
        """Row numbers of each forward pass."""
        return microbatches(lengths, rows, self.max_tokens, self.is_packed)

    def lay_out(
        self,
        input_ids: Sequence[torch.Tensor],
        prompt_lens: Sequence[int],
        device: torch.device,
    ) -> TokenRows:
        """The rows of one forward pass as tensors."""
        return (pack if self.is_packed else pad)(input_ids, prompt_lens, device)


def training_passes(policy: Policy, optim: OptimizerConfig) -> Passes:
    """How an update sends rows through this policy's model."""
    is_packed = optim.layout == "packed" or (
        optim.layout == "auto" and policy.device.type == "cuda"
    )
    return Passes(optim.microbatch_tokens, is_packed, optim.head_tokens)


def token_outputs(
    policy: Policy,
    rows: TokenRows,
    temperature_N: torch.Tensor,
    *,
    entropy: EntropyMode,
    head_tokens: int,
) -> TokenOutputs:
    """log softmax(logits / temperature) of each answer token, and its entropy.

    `temperature_N` (N,) > 0. `entropy` "value" is without gradient. At most `head_tokens` rows of
    logits exist at once, in the forward and in the backward pass; where that cuts the tokens into
    several chunks and a gradient is asked for, the output projection is computed twice.
    """
    hidden_NH = hidden_states(policy, rows)
    num_tokens = len(hidden_NH)
    logprobs: list[torch.Tensor] = []
    entropies: list[torch.Tensor] = []
    for start in range(0, num_tokens, head_tokens):
        chunk = slice(start, start + head_tokens)
        arguments = (policy, hidden_NH[chunk], rows.target_N[chunk], temperature_N[chunk], entropy)
        if num_tokens > head_tokens and torch.is_grad_enabled():
            logprob_C, entropy_C = checkpoint(
                _head_outputs, *arguments, use_reentrant=False, preserve_rng_state=False
            )
        else:
            logprob_C, entropy_C = _head_outputs(*arguments)
        logprobs.append(logprob_C)
        entropies.append(entropy_C)
    if not logprobs:
        return TokenOutputs(hidden_NH.new_zeros(0), hidden_NH.new_zeros(0))
    return TokenOutputs(torch.cat(logprobs), torch.cat(entropies))


def hidden_states(policy: Policy, rows: TokenRows) -> torch.Tensor:
    """Last hidden states (N, H) at the places that predict the answer tokens, float32.

    Right-padded rows need no mask: with causal attention and natural positions no padding is
    visible to a real token. Packed rows are kept apart by their positions, from which the library
    makes the block-diagonal mask or the lengths of its kernel.
    """
    with policy.forward_pass():
        output = policy.body(
            input_ids=rows.input_ids_BL, position_ids=rows.position_ids_BL, use_cache=False
        )
    return output.last_hidden_state.flatten(0, 1)[rows.slot_N].float()


def token_entropy(logprobs_NV: torch.Tensor) -> torch.Tensor:
    """H = -sum_v p_v log p_v in nats, (N,), from log-probabilities over the whole vocabulary."""
    return -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)


@torch.no_grad()
def score_rows(
    policy: Policy,
    input_ids: Sequence[torch.Tensor],
    prompt_lens: Sequence[int],
    temperatures: Sequence[float],
    passes: Passes,
) -> list[torch.Tensor]:
    """Log-probabilities of each row's answer tokens (L_b,), float32 on the CPU, in order.

    Row b is `input_ids[b]` with a prompt of `prompt_lens[b]` >= 1 ids; an answer may be empty.
    """
    scores = [torch.zeros(0)] * len(input_ids)
    lengths = [len(ids) for ids in input_ids]
    answered = [row for row, length in enumerate(lengths) if length > prompt_lens[row]]
    for group in passes.groups(lengths, answered):
        rows = passes.lay_out(
            [input_ids[row] for row in group], [prompt_lens[row] for row in group], policy.device
        )
        temperature_N = torch.tensor([temperatures[row] for row in group], device=policy.device)
        outputs = token_outputs(
            policy,
            rows,
            temperature_N[rows.row_N],
            entropy="none",
            head_tokens=passes.head_tokens,
        )
        parts = outputs.logprobs_N.cpu().split([lengths[row] - prompt_lens[row] for row in group])
        for row, part in zip(group, parts, strict=True):
            scores[row] = part
    return scores


def _head_outputs(
    policy: Policy,
    hidden_CH: torch.Tensor,
    target_C: torch.Tensor,
    temperature_C: torch.Tensor,
    entropy: EntropyMode,
) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs_CV = log_softmax(policy.head(hidden_CH), temperature_C)
    chosen_C = logprobs_CV.gather(1, target_C[:, None])[:, 0]
    if entropy == "none":
        return chosen_C, torch.zeros_like(chosen_C)
    with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
        return chosen_C, token_entropy(logprobs_CV)
