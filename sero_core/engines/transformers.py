"""Batched generation and scoring with a transformers model in the trainer's own process.

Prompts are right-padded for the prefill (pure causal attention, natural positions), so the cache
has holes between a short prompt and its first answer token; while decoding the holes are masked and
positions continue from the row's own length. A row never sees padding (docs/correctness.md T18),
and its tokens depend on its prompt and seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sero_core.batch import microbatches
from sero_core.engines.sampling import choose, seed_words, uniforms
from sero_core.engines.shared import Row, families, score_families, worthwhile
from sero_core.forward import Passes, score_rows
from sero_core.policy import Policy
from sero_core.types import Completion, SeroError

if TYPE_CHECKING:
    from sero_core.config import TransformersEngine

FORWARD_TOKENS = {"cpu": 1024, "cuda": 65_536}
"""Padded tokens per forward pass over prompts. On a CPU small passes stay in its cache: scoring
rows of 190 tokens with a model of 0.8 M parameters took 1.5 times as long at 8,192."""
HEAD_TOKENS = 512
"""Tokens whose logits over the vocabulary exist at once while scoring."""


@dataclass(slots=True)
class _Rows:
    """The rows of one generation batch that are still being written."""

    index: list[int]
    lens_B: torch.Tensor
    words: np.ndarray
    mask_BK: torch.Tensor
    cache: DynamicCache


class TransformersRuntime:
    """Engine `transformers`. It reads the policy's live parameters; `load` swaps the policy."""

    def __init__(self, config: TransformersEngine, policy: Policy) -> None:
        self._batch_size = config.batch_size
        self._policy = policy

    def load(self, policy: Policy) -> None:
        """Use this policy from now on."""
        self._policy = policy

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seeds: Sequence[int],
    ) -> list[Completion]:
        """Sample one completion per prompt, in order; temperature 0 is greedy.

        A row's tokens depend on its prompt and its seed, not on the other rows. Log-probabilities
        are float32 under softmax(logits / temperature) of the full vocabulary (temperature 1 if
        greedy). A sampled stop token is the last token id and not part of the text; `is_truncated`
        means that `max_new_tokens` came first.
        Errors: `SeroError` for an empty prompt, another number of seeds, a negative temperature.
        """
        if len(seeds) != len(prompts):
            raise SeroError(f"got {len(seeds)} seeds for {len(prompts)} prompts, expected as many")
        if not all(prompts) or temperature < 0 or max_new_tokens < 1:
            raise SeroError(
                "expected prompts that are not empty, temperature >= 0 and max_new_tokens >= 1, "
                f"got {min(map(len, prompts), default=0)} ids, {temperature} and {max_new_tokens}"
            )
        order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), prompts[index]))
        answers: dict[int, Completion] = {}
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            completions = _generate(
                self._policy,
                [prompts[index] for index in chosen],
                temperature,
                max_new_tokens,
                [seeds[index] for index in chosen],
            )
            answers.update(zip(chosen, completions, strict=True))
        return [answers[index] for index in range(len(prompts))]

    def score(
        self,
        prompts: Sequence[tuple[int, ...]],
        completions: Sequence[tuple[int, ...]],
        *,
        temperature: float = 1.0,
    ) -> list[tuple[float, ...]]:
        """Teacher-forced log-probabilities of each completion's tokens, in order, float32.

        What rows share is read once where that halves the tokens (`shared.py`).
        Errors: `SeroError` for an empty prompt or another number of completions.
        """
        if len(completions) != len(prompts) or not all(prompts) or temperature <= 0:
            raise SeroError("expected one completion per non-empty prompt and a temperature > 0")
        scored = [index for index, completion in enumerate(completions) if completion]
        rows = [
            Row(prompts[index] + completions[index], len(completions[index])) for index in scored
        ]
        found = score_families(
            self._policy,
            rows,
            worthwhile(rows, families(rows)),
            temperature=temperature,
            forward_tokens=_forward_tokens(self._policy),
            head_tokens=HEAD_TOKENS,
        )
        shared = {scored[number]: values for number, values in found.items()}
        alone = [index for index in range(len(prompts)) if index not in shared]
        scores = self._score_alone(
            [prompts[index] for index in alone],
            [completions[index] for index in alone],
            temperature,
        )
        shared |= dict(zip(alone, scores, strict=True))
        return [shared[index] for index in range(len(prompts))]

    def _score_alone(
        self,
        prompts: Sequence[tuple[int, ...]],
        completions: Sequence[tuple[int, ...]],
        temperature: float,
    ) -> list[tuple[float, ...]]:
        """Every row by itself, in padded passes."""
        scores = score_rows(
            self._policy,
            [torch.tensor(p + c) for p, c in zip(prompts, completions, strict=True)],
            [len(prompt) for prompt in prompts],
            [temperature] * len(prompts),
            Passes(_forward_tokens(self._policy), is_packed=False, head_tokens=HEAD_TOKENS),
        )
        return [tuple(values.tolist()) for values in scores]


@torch.inference_mode()
def _generate(
    policy: Policy,
    prompts: Sequence[tuple[int, ...]],
    temperature: float,
    max_new_tokens: int,
    seeds: Sequence[int],
) -> list[Completion]:
    tokens: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    stops = set(policy.stop_ids)
    rows, hidden_BH = _prefill(policy, prompts, seeds)
    for step in range(max_new_tokens):
        logits_BV = policy.head(hidden_BH.float()).float()
        token_B, logprob_B = choose(logits_BV, temperature, uniforms(rows.words, step))
        alive: list[int] = []
        sampled = cast(list[int], token_B.tolist())
        for place, (token, logprob) in enumerate(zip(sampled, logprob_B.tolist(), strict=True)):
            index = rows.index[place]
            if tokens[index] and tokens[index][-1] in stops:
                continue
            tokens[index].append(token)
            logprobs[index].append(logprob)
            if token not in stops:
                alive.append(place)
        if not alive or step == max_new_tokens - 1:
            break
        if 2 * len(alive) <= len(rows.index):
            _keep(rows, alive)
            token_B = token_B[torch.tensor(alive, device=token_B.device)]
        hidden_BH = _decode(policy, rows, token_B)
    return [
        _completion(policy, ids, values, stops)
        for ids, values in zip(tokens, logprobs, strict=True)
    ]


def _prefill(
    policy: Policy, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int]
) -> tuple[_Rows, torch.Tensor]:
    """Run each distinct prompt once; returns the rows and their last hidden states (B, H)."""
    distinct = list(dict.fromkeys(prompts))
    place = {prompt: index for index, prompt in enumerate(distinct)}
    lengths = [len(prompt) for prompt in distinct]
    cache, hidden_BH = _read(policy, distinct)
    lens_B = torch.tensor(lengths, device=policy.device)
    if len(distinct) < len(prompts):
        source = torch.tensor([place[prompt] for prompt in prompts], device=policy.device)
        cache.batch_select_indices(source)
        hidden_BH, lens_B = hidden_BH[source], lens_B[source]
    mask_BK = torch.arange(max(lengths), device=policy.device)[None, :] < lens_B[:, None]
    return _Rows(list(range(len(prompts))), lens_B, seed_words(seeds), mask_BK, cache), hidden_BH


def _read(policy: Policy, prompts: Sequence[tuple[int, ...]]) -> tuple[DynamicCache, torch.Tensor]:
    """One cache over all prompts and their last hidden states, in passes of `FORWARD_TOKENS`."""
    lengths = [len(prompt) for prompt in prompts]
    groups = microbatches(lengths, range(len(prompts)), _forward_tokens(policy))
    parts: list[DynamicCache] = []
    hidden: list[torch.Tensor] = []
    for group in groups:
        ids_BL = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(prompts[index]) for index in group], batch_first=True
        ).to(policy.device)
        last_B = torch.tensor([lengths[index] - 1 for index in group], device=policy.device)
        part = DynamicCache()
        with policy.autocast():
            output = policy.body(input_ids=ids_BL, cache=part, use_cache=True)
        hidden.append(
            output.last_hidden_state[torch.arange(len(group), device=last_B.device), last_B]
        )
        parts.append(part)
    order = torch.tensor([index for group in groups for index in group], device=policy.device)
    back = order.argsort()
    return _join(parts, back, max(lengths)), torch.cat(hidden)[back]


def _join(parts: Sequence[DynamicCache], order: torch.Tensor, length: int) -> DynamicCache:
    """The rows of several caches in one, padded to `length`; row i is row `order[i]` of all."""
    joined = DynamicCache()
    for number in range(len(parts[0].layers)):
        layers = [cast(DynamicLayer, part.layers[number]) for part in parts]
        keys = torch.cat([_extend(layer.keys, length) for layer in layers])
        values = torch.cat([_extend(layer.values, length) for layer in layers])
        joined.update(keys[order], values[order], number)
    return joined


def _extend(states: torch.Tensor | None, length: int) -> torch.Tensor:
    """Keys or values (B, heads, L, size) with L padded to `length`."""
    if states is None:
        raise SeroError("the model left a layer of its cache empty")
    return torch.nn.functional.pad(states, (0, 0, 0, length - states.shape[2]))


def _forward_tokens(policy: Policy) -> int:
    return FORWARD_TOKENS.get(policy.device.type, FORWARD_TOKENS["cuda"])


def _decode(policy: Policy, rows: _Rows, token_B: torch.Tensor) -> torch.Tensor:
    """Append one token to every row; returns the new hidden states (B, H)."""
    rows.mask_BK = torch.cat([rows.mask_BK, torch.ones_like(rows.mask_BK[:, :1])], dim=1)
    with policy.autocast():
        output = policy.body(
            input_ids=token_B[:, None],
            attention_mask=rows.mask_BK[:, None, None, :],
            position_ids=rows.lens_B[:, None],
            cache=rows.cache,
            use_cache=True,
        )
    rows.lens_B = rows.lens_B + 1
    return output.last_hidden_state[:, 0]


def _keep(rows: _Rows, alive: list[int]) -> None:
    """Drop finished rows; worth its copy once half of them are finished."""
    kept = torch.tensor(alive, device=rows.lens_B.device)
    rows.index = [rows.index[place] for place in alive]
    rows.words = rows.words[alive]
    rows.lens_B, rows.mask_BK = rows.lens_B[kept], rows.mask_BK[kept]
    rows.cache.batch_select_indices(kept)


def _completion(
    policy: Policy, ids: list[int], logprobs: list[float], stops: set[int]
) -> Completion:
    is_truncated = ids[-1] not in stops
    text = policy.tokenizer.decode(ids if is_truncated else ids[:-1], skip_special_tokens=False)
    return Completion(tuple(ids), tuple(logprobs), cast(str, text), is_truncated)
