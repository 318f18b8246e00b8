"""What the weight rules read: the right texts scored once, the greedy action, counted samples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sero_core.branching.scoring import Question, Scorer, candidates, command_logprob
from sero_core.policy import load_policy
from sero_core.prompts import PromptBuilder
from sero_core.reachability import WeightRule
from sero_core.sections import PromptConfig
from tests.support.scripted_engine import Ids, ScriptedEngine

ADMISSIBLE = ("go to desk 1", "go to shelf 1", "go to shelf 10", "look")


@pytest.fixture(scope="module")
def builder() -> PromptBuilder:
    return PromptBuilder(PromptConfig(name="standard"), load_policy("demo").tokenizer)


def question(builder: PromptBuilder, action: str, name: str = "b0k0") -> Question:
    opening = builder.opening("A thought.")
    rendered = builder.render(action, opening)
    return Question(name, (7, len(name)), action, ADMISSIBLE, opening, rendered)


def saying(builder: PromptBuilder, *texts: str) -> ScriptedEngine:
    """Answers in order; a token's log-probability is its id / 1000, so that texts differ."""
    tokenizer = builder._tokenizer  # pyright: ignore
    answers = iter(texts)

    def answer(prompt: Ids, temperature: float, seed: int) -> Ids:
        return tuple(tokenizer(next(answers), add_special_tokens=False)["input_ids"])  # pyright: ignore

    return ScriptedEngine(answer, builder.decode, lambda ids, place: -(ids[place] + 1) / 1000)


def scorer(
    builder: PromptBuilder, engine: ScriptedEngine, *rules: WeightRule, probe: bool = False
) -> Scorer:
    return Scorer(engine, builder, frozenset(rules), probe, num_samples=4, max_new_tokens=9)


def span_mean(builder: PromptBuilder, action: str) -> float:
    """ell of an action under the scripted numbers, by hand."""
    rendered = builder.render(action, builder.opening("A thought."))
    pairs = zip(rendered.token_ids, rendered.scored, strict=True)
    span = [-(token + 1) / 1000 for token, kept in pairs if kept]
    return sum(span) / len(span)


def answer_of(action: str) -> str:
    return f"<think>x</think>\n<action>{action}</action>"


def test_without_rules_and_probe_only_the_oracles_action_is_scored(builder: PromptBuilder) -> None:
    engine = saying(builder)
    questions = [question(builder, "look"), question(builder, "go to desk 1", "b1k0")]
    first, second = scorer(builder, engine, "lennorm").score(questions, 0)
    assert engine.calls == ["score 2"]
    assert len(first.logprobs) == len(questions[0].rendered.token_ids) == len(first.scored)
    assert (first.probe_action, first.greedy_logprob_mean, first.num_samples) == (None,) * 3
    assert second.admissible_logprobs is second.admissible_index is None


def test_the_greedy_action_is_compared_in_the_same_answer(builder: PromptBuilder) -> None:
    said = [answer_of("go to shelf 1"), answer_of("Look"), "no tags", answer_of("")]
    engine = saying(builder, *said)
    questions = [question(builder, "look", f"b{i}k0") for i in range(4)]
    other, same, invalid, empty = scorer(builder, engine, "lennorm", probe=True).score(questions, 0)
    assert engine.calls == ["generate 4 at 0.0", "score 5"], "an equal action is not scored again"
    assert other.probe_action == "go to shelf 1"
    assert other.greedy_logprob_mean == pytest.approx(span_mean(builder, "go to shelf 1"))
    assert same.greedy_logprob_mean == pytest.approx(span_mean(builder, "look"))
    assert (invalid.probe_action, invalid.greedy_logprob_mean) == ("no tags", 0.0)
    assert empty.greedy_logprob_mean == 0.0


def test_relgreedy_asks_for_the_greedy_action_without_a_probe(builder: PromptBuilder) -> None:
    engine = saying(builder, answer_of("look"))
    (found,) = scorer(builder, engine, "relgreedy").score([question(builder, "look")], 0)
    assert found.greedy_logprob_mean == pytest.approx(span_mean(builder, "look"))


def test_admissible_actions_end_with_the_token_that_ends_them(builder: PromptBuilder) -> None:
    """Else "go to shelf 1" would hold the probability of "go to shelf 10", too."""
    engine = saying(builder)
    (found,) = scorer(builder, engine, "admissible").score([question(builder, "look")], 0)
    assert engine.calls == ["score 5"]
    assert found.admissible_index == 3
    assert found.admissible_logprobs is not None
    for action, got in zip(ADMISSIBLE, found.admissible_logprobs, strict=True):
        rendered = builder.render(action, builder.opening("A thought."))
        ids = rendered.token_ids
        last = max(i for i, kept in enumerate(rendered.scored) if kept)
        assert rendered.tokens[last + 1].startswith("<")
        wanted = [*(ids[i] for i, kept in enumerate(rendered.scored) if kept), ids[last + 1]]
        assert got == pytest.approx(-sum(token + 1 for token in wanted) / 1000)
        assert command_logprob(rendered, [-(t + 1) / 1000 for t in ids]) == pytest.approx(got)


def test_an_action_that_no_list_holds_is_one_more_candidate(builder: PromptBuilder) -> None:
    free = question(builder, "search[red mug]")
    assert candidates(free) == (*ADMISSIBLE, "search[red mug]")
    (found,) = scorer(builder, saying(builder), "admissible").score([free], 0)
    assert found.admissible_index == 4


def test_samples_are_counted_and_their_seeds_are_their_own(builder: PromptBuilder) -> None:
    said = [answer_of(a) for a in ("look", "LOOK", "go to desk 1", "look")]
    said += [answer_of("go to desk 1")] * 4
    questions = [question(builder, "look"), question(builder, "look", "b1k0")]
    engine = saying(builder, *said)
    found = scorer(builder, engine, "sampled").score(questions, 5)
    assert engine.calls == ["generate 8 at 1.0", "score 2"]
    assert [(f.num_matches, f.num_samples) for f in found] == [(3, 4), (0, 4)]
    assert len(set(engine.seeds)) == 8
    seeds = seeds_of(builder, questions, said, 5)
    assert seeds == engine.seeds != seeds_of(builder, questions, said, 6)


def seeds_of(
    builder: PromptBuilder, questions: Sequence[Question], said: Sequence[str], seed: int
) -> list[int]:
    engine = saying(builder, *said)
    scorer(builder, engine, "sampled").score(questions, seed)
    return engine.seeds


def test_all_rules_at_once_are_three_batches(builder: PromptBuilder) -> None:
    said = [answer_of("go to desk 1")] + [answer_of("look")] * 4
    engine = saying(builder, *said)
    rules: tuple[WeightRule, ...] = ("lennorm", "admissible", "relgreedy", "sampled")
    (found,) = scorer(builder, engine, *rules).score([question(builder, "look")], 0)
    assert engine.calls == ["generate 1 at 0.0", "generate 4 at 1.0", "score 6"]
    assert found.greedy_logprob_mean == pytest.approx(span_mean(builder, "go to desk 1"))
    assert (found.num_matches, found.admissible_index) == (4, 3)
