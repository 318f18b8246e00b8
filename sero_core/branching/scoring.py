"""The behavior policy's view of each oracle step: what the weight rules read, in few passes.

Every text that any rule asks for, of all branches of an iteration, is scored in one call; the
engine reads what they share once. Answers that the policy writes itself (the greedy probe, the
samples) are one generation batch each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sero_core.collect import Engine
from sero_core.prompts import Opening, ParsedAction, PromptBuilder, RenderedAction, same_action
from sero_core.reachability import WeightRule, span_logprobs
from sero_core.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Question:
    """One oracle step to be scored. `name` seeds its samples; `opening` stands before every action
    that is compared with the oracle's."""

    name: str
    prompt_ids: tuple[int, ...]
    action: str
    admissible: tuple[str, ...]
    opening: Opening
    rendered: RenderedAction


@dataclass(frozen=True, slots=True)
class Ingredients:
    """See `reachability.StepIngredients`. `probe_action` is the policy's greedy action."""

    logprobs: tuple[float, ...]
    scored: tuple[bool, ...]
    probe_action: str | None
    greedy_logprob_mean: float | None
    admissible_logprobs: tuple[float, ...] | None
    admissible_index: int | None
    num_samples: int | None
    num_matches: int | None


@dataclass(frozen=True, slots=True)
class Scorer:
    """Asks the behavior policy for what `rules` read, and with `probe` for its greedy actions."""

    engine: Engine
    builder: PromptBuilder
    rules: frozenset[WeightRule]
    probe: bool
    num_samples: int
    max_new_tokens: int

    def score(self, questions: Sequence[Question], seed: int) -> list[Ingredients]:
        """The ingredients of every question, in order. Greedy and sampled answers are at most
        `max_new_tokens` long; samples are drawn at temperature 1 from (seed, name)."""
        greedy = self._greedy(questions)
        matches = self._matches(questions, seed)
        compared = [
            self._compared(question, answer)
            for question, answer in zip(questions, greedy, strict=True)
        ]
        scores = iter(
            self.engine.score(
                [q.prompt_ids for q, texts in zip(questions, compared, strict=True) for _ in texts],
                [text.token_ids for texts in compared for text in texts],
            )
        )
        return [
            _ingredients(
                question,
                texts,
                list(islice(scores, len(texts))),
                probe=answer,
                num_samples=None if matched is None else self.num_samples,
                num_matches=matched,
                has_admissible="admissible" in self.rules,
            )
            for question, texts, answer, matched in zip(
                questions, compared, greedy, matches, strict=True
            )
        ]

    def _greedy(self, questions: Sequence[Question]) -> list[ParsedAction | None]:
        if not self.probe and "relgreedy" not in self.rules:
            return [None] * len(questions)
        completions = self.engine.generate(
            [question.prompt_ids for question in questions],
            temperature=0.0,
            max_new_tokens=self.max_new_tokens,
            seeds=[0] * len(questions),
        )
        return [self.builder.parse(completion.text) for completion in completions]

    def _matches(self, questions: Sequence[Question], seed: int) -> list[int | None]:
        """How many of the policy's sampled answers name the oracle's action."""
        if "sampled" not in self.rules:
            return [None] * len(questions)
        numbers = range(self.num_samples)
        completions = self.engine.generate(
            [question.prompt_ids for question in questions for _ in numbers],
            temperature=1.0,
            max_new_tokens=self.max_new_tokens,
            seeds=[derive_seed(seed, "sample", q.name, i) for q in questions for i in numbers],
        )
        answers = iter(self.builder.parse(completion.text).action for completion in completions)
        return [
            sum(
                same_action(answer, question.action) for answer in islice(answers, self.num_samples)
            )
            for question in questions
        ]

    def _compared(self, question: Question, greedy: ParsedAction | None) -> list[RenderedAction]:
        """The oracle's action, then the admissible ones, then the greedy one if it is another."""
        texts = [question.rendered]
        if "admissible" in self.rules:
            texts += [
                self.builder.render(action, question.opening) for action in candidates(question)
            ]
        if (other := _other_action(question, greedy)) is not None:
            texts.append(self.builder.render(other, question.opening))
        return texts


def candidates(question: Question) -> tuple[str, ...]:
    """The actions among which `admissible` compares: the admissible ones, and the oracle's own
    where that is none of them (free text)."""
    actions = tuple(dict.fromkeys(question.admissible))
    return actions if question.action in actions else (*actions, question.action)


def _other_action(question: Question, greedy: ParsedAction | None) -> str | None:
    """The policy's greedy action where it is a valid one and not the oracle's."""
    if greedy is None or not greedy.is_valid or same_action(greedy.action, question.action):
        return None
    return greedy.action


def _ingredients(
    question: Question,
    texts: Sequence[RenderedAction],
    scores: Sequence[tuple[float, ...]],
    *,
    probe: ParsedAction | None,
    num_samples: int | None,
    num_matches: int | None,
    has_admissible: bool,
) -> Ingredients:
    name = f"{question.name}, action {question.action!r}"
    greedy_mean = None
    if probe is not None and not probe.is_valid:
        greedy_mean = 0.0
    elif probe is not None:
        place = 0 if _other_action(question, probe) is None else -1
        greedy_mean, _ = span_logprobs(scores[place], texts[place].scored, name)
    actions = candidates(question) if has_admissible else ()
    return Ingredients(
        logprobs=scores[0],
        scored=question.rendered.scored,
        probe_action=None if probe is None else probe.action,
        greedy_logprob_mean=greedy_mean,
        admissible_logprobs=tuple(
            command_logprob(texts[1 + place], scores[1 + place]) for place in range(len(actions))
        )
        if actions
        else None,
        admissible_index=actions.index(question.action) if actions else None,
        num_samples=num_samples,
        num_matches=num_matches,
    )


def command_logprob(rendered: RenderedAction, logprobs: Sequence[float]) -> float:
    """log mu of a command: its span and the first token after it, which says that it ends here."""
    last = max(place for place, is_scored in enumerate(rendered.scored) if is_scored)
    _, total = span_logprobs(logprobs, rendered.scored, rendered.text)
    return total + logprobs[last + 1]
