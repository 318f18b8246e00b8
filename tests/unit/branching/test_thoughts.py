"""Thoughts before the oracle's action: exact sampled tokens, one batch, a valid answer always."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from sero_core.branching.execute import ExecutedStep, Execution
from sero_core.branching.roots import Root
from sero_core.branching.thoughts import Thought, opening_of, think
from sero_core.collect import Sampling
from sero_core.prompts import Prompt, PromptBuilder
from sero_core.sections import PromptConfig
from sero_core.sections_sero import PolicyThought, TeacherThought, TemplateThought
from sero_core.types import Completion, Observation
from tests.support.bpe import bpe_tokenizer
from tests.support.chat_server import Script
from tests.support.episodes import episode_of
from tests.support.scripted_engine import ScriptedEngine

ACTION = "go to desk 1"
SEEN = Observation("You see a desk 1.", (ACTION, "look"))


@pytest.fixture(scope="module")
def builder() -> PromptBuilder:
    return PromptBuilder(PromptConfig(name="standard"), bpe_tokenizer())


def encode(text: str) -> tuple[int, ...]:
    return tuple(bpe_tokenizer()(text, add_special_tokens=False)["input_ids"])  # pyright: ignore


def execution(num_steps: int, index: int = 2) -> Execution:
    root = Root(episode_of(0, 5), index)
    steps = tuple(
        ExecutedStep(replace(SEEN, text=f"Step {k}."), ACTION, Prompt(f"p{k}", (7, k)), 0.0, "h")
        for k in range(num_steps)
    )
    return Execution(root, "won", "", "h", steps, SEEN)


def answering(*texts: str) -> ScriptedEngine:
    """Says the texts in order."""
    answers = iter(texts)
    return ScriptedEngine(
        lambda prompt, temperature, seed: encode(next(answers)), bpe_tokenizer().decode
    )


def thoughts(
    config: TemplateThought | PolicyThought | TeacherThought,
    runs: Sequence[Execution],
    engine: ScriptedEngine,
    builder: PromptBuilder,
    seed: int = 0,
) -> list[list[Thought]]:
    return think(
        config, runs, builder=builder, engine=engine, sampling=Sampling(0.7, 64), seed=seed
    )


def completion(ids: tuple[int, ...]) -> Completion:
    return Completion(ids, (-1.0,) * len(ids), bpe_tokenizer().decode(ids), False)


def test_a_template_needs_no_model(builder: PromptBuilder) -> None:
    engine = answering()
    found = thoughts(TemplateThought(), [execution(2)], engine, builder)
    assert [thought.source for thought in found[0]] == ["template"] * 2
    assert engine.calls == []
    terse = PromptBuilder(PromptConfig(name="terse"), bpe_tokenizer())
    found = thoughts(TemplateThought(), [execution(1)], engine, terse)
    assert (found[0][0].source, found[0][0].opening.text) == ("none", "")


def test_a_policy_thought_is_one_batch_with_seeds_of_its_own(builder: PromptBuilder) -> None:
    texts = [f"<think>I look {i}.</think>\n<action>look</action>" for i in range(5)]
    runs = [execution(3), execution(0), execution(2, index=0)]
    engine = answering(*texts)
    found = thoughts(PolicyThought(), runs, engine, builder)
    assert engine.calls == ["generate 5 at 0.7"]
    assert len(set(engine.seeds)) == 5
    assert [len(part) for part in found] == [3, 0, 2]
    again = answering(*texts)
    thoughts(PolicyThought(), runs, again, builder)
    assert again.seeds == engine.seeds
    other = answering(*texts)
    thoughts(PolicyThought(), runs, other, builder, seed=1)
    assert not set(other.seeds) & set(engine.seeds)
    rendered = builder.render(ACTION, found[2][1].opening)
    said = builder.decode(rendered.token_ids[:-1])
    assert said == f"<think>I look 4.</think>\n<action>{ACTION}</action>"
    scored = [token for token, kept in zip(rendered.tokens, rendered.scored, strict=True) if kept]
    assert "".join(scored) == ACTION


def test_the_sampled_tokens_of_a_thought_stay_as_they_are(builder: PromptBuilder) -> None:
    """T1 for thoughts: another split of the same text is kept, not tokenised again."""
    think_ids = encode("<think>I") + encode(" l") + encode("ook at the desk.</think>")
    assert think_ids != encode("<think>I look at the desk.</think>")
    ids = think_ids + encode(" <action>look</action>")
    opening = opening_of(completion(ids), builder)
    assert opening is not None
    assert opening.sampled_ids == think_ids
    assert opening.text == " "
    rendered = builder.render(ACTION, opening)
    assert rendered.token_ids[: len(think_ids)] == think_ids
    assert not any(rendered.scored[: len(think_ids)])


def test_a_token_that_reaches_into_the_tag_is_kept_as_text(builder: PromptBuilder) -> None:
    """Here " <" is one token: it holds a space of the thought and the tag's first character."""
    ids = encode("<think>x</think> <action>look</action>")
    straddling = [i for i in ids if bpe_tokenizer().decode([i]) == " <"]
    assert straddling, "the tokenizer of this test has such a token"
    opening = opening_of(completion(ids), builder)
    assert opening is not None
    assert straddling[0] not in opening.sampled_ids
    assert builder.decode(opening.sampled_ids) + opening.text == "<think>x</think> "


@pytest.mark.parametrize(
    "text",
    [
        "no tag at all",
        "<think>never ends",
        "<action>look</action>",
        "<think>x<action>look</action>",
        "<think>\u770b</think><action>look</action>",
        "<think>x</think><ACTION>look</ACTION><action>look</action>",
    ],
)
def test_an_unusable_thought_is_replaced_and_says_so(builder: PromptBuilder, text: str) -> None:
    found = thoughts(PolicyThought(), [execution(1)], answering(text), builder)[0][0]
    assert found == Thought("replaced", builder.opening())


@pytest.fixture
def server() -> Iterator[Script]:
    script = Script.start()
    yield script
    script.stop()


def teacher(server: Script, **changes: object) -> TeacherThought:
    fields = {"base_url": server.url, "model": "m", "max_retries": 0, **changes}
    return TeacherThought.model_validate(fields)


def test_a_teacher_sees_the_episode_and_its_rationale_is_trained_whole(
    server: Script, builder: PromptBuilder
) -> None:
    server.answers = [(200, "I saw\n a desk.  So I go there.", 0.0)] * 3
    engine = answering()
    found = thoughts(teacher(server, max_parallel=3), [execution(3)], engine, builder)[0]
    assert {thought.source for thought in found} == {"teacher"}
    assert found[0].opening.text == "<think>I saw a desk. So I go there.</think>\n"
    assert engine.calls == []
    asked = sorted(str(body["messages"][1]["content"]) for body in server.bodies)  # pyright: ignore
    longest = max(asked, key=len)
    for part in ("> look", "Step 1.", f"> {ACTION}", "Step 2.", f"next action: {ACTION}"):
        assert part in longest
    assert len({len(text) for text in asked}) == 3, "each step has its own past"


@pytest.mark.parametrize(
    ("status", "content"), [(401, ""), (200, "  "), (200, "</think><action>look</action>")]
)
def test_a_teacher_that_fails_or_spoils_the_format_is_replaced(
    server: Script, builder: PromptBuilder, status: int, content: str
) -> None:
    server.answers = [(status, content, 0.0)]
    found = thoughts(teacher(server), [execution(1)], answering(), builder)[0][0]
    assert found.source == "replaced"
