"""An engine whose answers a test writes: prompts are read as text, answers become token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from sero_core.types import Completion


@dataclass(slots=True)
class ScriptedEngine:
    """`answer(prompt, seed)` is what the model says. `prompts` keeps every prompt, in order."""

    tokenizer: PreTrainedTokenizerBase
    answer: Callable[[str, int], str]
    prompts: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        *,
        temperature: float,
        max_new_tokens: int,
        seeds: Sequence[int],
    ) -> list[Completion]:
        texts = [str(self.tokenizer.decode(list(prompt))) for prompt in prompts]
        self.prompts += texts
        self.limits += [max_new_tokens] * len(texts)
        answers = [self.answer(text, seed) for text, seed in zip(texts, seeds, strict=True)]
        return [self._completion(answer) for answer in answers]

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]]
    ) -> list[tuple[float, ...]]:
        raise AssertionError("an evaluation scores nothing")

    def _completion(self, text: str) -> Completion:
        ids = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return Completion(ids, (0.0,) * len(ids), text, is_truncated=False)
