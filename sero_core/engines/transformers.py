"""Batched generation and scoring with a transformers model in the trainer's own process.

Prompts are right-padded, never left-padded: with causal attention and natural positions a row
cannot see padding, neither while prompts are read nor later (correctness.md T18). Its tokens depend
on its own prompt and seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from sero_core.batch import microbatches, pad
from sero_core.engines.sampling import choose, seed_words, uniforms
from sero_core.engines.sessions import Session, open_session
from sero_core.policy import Policy, log_softmax_at, logits_at
from sero_core.types import Completion, SeroError

if TYPE_CHECKING:
    from sero_core.config import TransformersEngine

SCORE_TOKENS = {"cpu": 4096, "cuda": 65_536}
"""Padded tokens per forward pass of `score`."""

KEEP_SHARE = 0.75
"""Finished rows are dropped once the rows still being written are at most this share."""


@dataclass(slots=True)
class _Answer:
    """What one row has written so far."""

    token_ids: list[int]
    logprobs: list[float]
    is_finished: bool = False


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

        Errors: `SeroError` for an empty prompt or another number of completions.
        """
        if len(completions) != len(prompts) or not all(prompts) or temperature <= 0:
            raise SeroError("expected one completion per non-empty prompt and a temperature > 0")
        ids = [torch.tensor(p + c) for p, c in zip(prompts, completions, strict=True)]
        lengths = [len(row) for row in ids]
        scores: list[tuple[float, ...]] = [()] * len(prompts)
        scored = [index for index, completion in enumerate(completions) if completion]
        budget = SCORE_TOKENS.get(self._policy.device.type, 4096)
        for rows in microbatches(lengths, scored, budget):
            padded = pad(
                [ids[row] for row in rows], [len(prompts[row]) for row in rows], self._policy.device
            )
            with torch.inference_mode():
                logits_NV = logits_at(
                    self._policy, padded.input_ids_BL, padded.row_N, padded.position_N
                )
                temperature_N = torch.full_like(logits_NV[:, 0], temperature)
                values = log_softmax_at(logits_NV, padded.target_N, temperature_N).tolist()
            start = 0
            for row in rows:
                stop = start + len(completions[row])
                scores[row] = tuple(values[start:stop])
                start = stop
        return scores


@torch.inference_mode()
def _generate(
    policy: Policy,
    prompts: Sequence[tuple[int, ...]],
    temperature: float,
    max_new_tokens: int,
    seeds: Sequence[int],
) -> list[Completion]:
    """Prompts are sorted by length; equal prompts are read once."""
    answers = [_Answer([], []) for _ in prompts]
    writing, words = answers, seed_words(seeds)
    session = open_session(policy, max_new_tokens)
    hidden_BH = _start(session, prompts, policy.device)
    for step in range(max_new_tokens):
        token_B, logprob_B = choose(_logits(policy, hidden_BH), temperature, uniforms(words, step))
        alive: list[int] = []
        sampled = zip(writing, token_B.tolist(), logprob_B.tolist(), strict=True)
        for place, (answer, token, logprob) in enumerate(sampled):
            if not answer.is_finished:
                answer.token_ids.append(token)
                answer.logprobs.append(logprob)
                answer.is_finished = token in policy.stop_ids
            if not answer.is_finished:
                alive.append(place)
        if not alive or step == max_new_tokens - 1:
            break
        if len(alive) <= KEEP_SHARE * len(writing):
            kept = torch.tensor(alive, device=token_B.device)
            session.select(kept)
            writing, words = [writing[place] for place in alive], words[alive]
            token_B = token_B[kept]
        hidden_BH = session.advance(token_B)
    return [_completion(policy, answer) for answer in answers]


def _start(
    session: Session, prompts: Sequence[tuple[int, ...]], device: torch.device
) -> torch.Tensor:
    distinct = list(dict.fromkeys(prompts))
    hidden_BH = session.start(distinct)
    if len(distinct) == len(prompts):
        return hidden_BH
    place = {prompt: index for index, prompt in enumerate(distinct)}
    source_B = torch.tensor([place[prompt] for prompt in prompts], device=device)
    session.select(source_B)
    return hidden_BH[source_B]


def _logits(policy: Policy, hidden_BH: torch.Tensor) -> torch.Tensor:
    return policy.head(hidden_BH.float()).float()


def _completion(policy: Policy, answer: _Answer) -> Completion:
    ids = answer.token_ids if not answer.is_finished else answer.token_ids[:-1]
    text = cast(str, policy.tokenizer.decode(ids, skip_special_tokens=False))
    return Completion(tuple(answer.token_ids), tuple(answer.logprobs), text, not answer.is_finished)
