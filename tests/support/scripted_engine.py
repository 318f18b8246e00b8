"""A policy that says what a test tells it to: answers by prompt, numbers by text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sero_core.types import Completion

Ids = tuple[int, ...]


@dataclass
class ScriptedEngine:
    """`answer(prompt, temperature, seed)` are token ids; `logprob(ids, place)` scores a token.

    `calls` counts the batches it was asked for, `asked` the rows of each.
    """

    answer: Callable[[Ids, float, int], Ids]
    decode: Callable[[Sequence[int]], str]
    logprob: Callable[[Ids, int], float] = lambda ids, place: -0.1 * (place + 1)
    calls: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def generate(
        self,
        prompts: Sequence[Ids],
        *,
        temperature: float,
        max_new_tokens: int,
        seeds: Sequence[int],
    ) -> list[Completion]:
        self.calls.append(f"generate {len(prompts)} at {temperature}")
        self.seeds += seeds
        answers = [
            self.answer(prompt, temperature, seed)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        return [
            Completion(ids, (-1.0,) * len(ids), self.decode(ids), is_truncated=False)
            for ids in answers
        ]

    def score(self, prompts: Sequence[Ids], completions: Sequence[Ids]) -> list[tuple[float, ...]]:
        self.calls.append(f"score {len(prompts)}")
        return [tuple(self.logprob(ids, i) for i in range(len(ids))) for ids in completions]
