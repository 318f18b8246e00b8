"""Prompts and answers: formats, truncation, parsing corner cases, the scored span (S7, T1)."""

from __future__ import annotations

import pytest

from sero_core.policy import load_policy
from sero_core.prompts import (
    PastStep,
    PromptBuilder,
    PromptTooLong,
    task_text,
    terse_observation,
)
from sero_core.sections import PromptConfig
from sero_core.types import Observation

OBSERVATION = Observation(
    "You arrive at shelf 1. On the shelf 1, you see a mug 1, and a cup 2.",
    ("examine shelf 1", "go to desk 1", "help", "inventory", "look", "take mug 1 from shelf 1"),
)
PAST = [
    PastStep("Room. Your task is to: put a mug in desk.", "go to desk 1"),
    PastStep("On the desk 1, you see nothing.", "go to shelf 1"),
]


@pytest.fixture(scope="module")
def tokenizer():  # noqa: ANN201 - transformers has no useful type here
    return load_policy("demo").tokenizer


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("You arrive at shelf 1. On the shelf 1, you see a mug 1, and an egg 2.", "mug 1, egg 2"),
        ("The fridge 1 is closed.", "closed"),
        ("You arrive at fridge 1. The fridge 1 is closed.", "closed"),
        ("You open the fridge 1. The fridge 1 is open. In it, you see nothing.", "nothing"),
        ("You pick up the mug 1 from the desk 1.", "ok"),
        ("Nothing happens.", "nothing happens"),
    ],
)
def test_terse_observation(text: str, short: str) -> None:
    assert terse_observation(text) == short


def test_terse_prompt_shows_history_and_useful_actions(tokenizer) -> None:  # noqa: ANN001
    builder = PromptBuilder(PromptConfig(name="terse", history_length=8), tokenizer)
    prompt = builder.build("put a mug in desk.", PAST, OBSERVATION)
    assert prompt.text == (
        "<|im_start|>user\ntask: put a mug in desk\ngo to desk 1 > nothing\n"
        "go to shelf 1 > mug 1, cup 2\ncan:\ngo to desk 1\ntake mug 1 from shelf 1<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.decode(list(prompt.ids)) == prompt.text


def test_standard_prompt_has_the_protocol_parts(tokenizer) -> None:  # noqa: ANN001
    builder = PromptBuilder(PromptConfig(name="standard", history_length=1), tokenizer)
    text = builder.build("put a mug in desk.", PAST, OBSERVATION).text
    assert "Your task is to: put a mug in desk." in text
    assert "already taken 2 step(s)" in text
    assert "[Observation 2: 'On the desk 1, you see nothing.', Action 2: 'go to shelf 1']" in text
    assert "Observation 1:" not in text
    assert "'take mug 1 from shelf 1'" in text
    assert "'help'" not in text
    assert "<think> </think>" in text


def test_oldest_history_is_dropped_until_the_prompt_fits(tokenizer) -> None:  # noqa: ANN001
    long = PromptBuilder(PromptConfig(name="terse", history_length=8), tokenizer)
    short = PromptConfig(name="terse", history_length=8, max_prompt_tokens=64)
    past = [*PAST, *[PastStep("Nothing happens.", "go to desk 1")] * 8]
    prompt = PromptBuilder(short, tokenizer).build("put a mug in desk.", past, OBSERVATION)
    assert len(prompt.ids) <= 64 < len(long.build("put a mug in desk.", past, OBSERVATION).ids)
    assert "take mug 1 from shelf 1" in prompt.text
    many = Observation("x", tuple(f"go to shelf {i}" for i in range(50)))
    with pytest.raises(PromptTooLong, match="max_prompt_tokens is 64"):
        PromptBuilder(short, tokenizer).build("put a mug in desk.", past, many)


@pytest.mark.parametrize("name", ["terse", "standard"])
def test_s07_rendered_action_parses_back_and_scores_only_the_action(
    tokenizer,  # noqa: ANN001
    name: str,
) -> None:
    builder = PromptBuilder(PromptConfig.model_validate({"name": name}), tokenizer)
    rendered = builder.render("take mug 1 from shelf 1")
    parsed = builder.parse(rendered.text)
    assert (parsed.action, parsed.is_valid) == ("take mug 1 from shelf 1", True)
    scored = [
        token
        for token, is_scored in zip(rendered.tokens, rendered.scored, strict=True)
        if is_scored
    ]
    assert "".join(scored) == "take mug 1 from shelf 1"
    assert rendered.token_ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(list(rendered.token_ids[:-1])) == rendered.text


@pytest.mark.parametrize(
    ("response", "action", "is_valid"),
    [
        ("<action>Go To desk 1</action>", "go to desk 1", True),
        ("<action>a</action><action>b</action>", "a", True),
        ("go to desk 1", "go to desk 1", False),
        ("x" * 40, "x" * 30, False),
        ("</action><action>look</action>", "look", True),
        ("<action></action>", "", False),
        ("<action>看</action>", "看", False),
        ("<action>look", "<action>look", False),
    ],
)
def test_parse_terse(tokenizer, response: str, action: str, is_valid: bool) -> None:  # noqa: ANN001
    parsed = PromptBuilder(PromptConfig(name="terse"), tokenizer).parse(response)
    assert (parsed.action, parsed.is_valid) == (action, is_valid)


def test_standard_needs_think_tags(tokenizer) -> None:  # noqa: ANN001
    builder = PromptBuilder(PromptConfig(name="standard"), tokenizer)
    assert not builder.parse("<action>look</action>").is_valid
    assert builder.parse("<think>x</think><action>look</action>").is_valid


def test_task_text() -> None:
    assert task_text("Hi.\n\nYour task is to: put a mug in desk.") == "put a mug in desk."
    assert task_text("no task") == "no task"


def test_a_preface_stands_before_the_body_and_counts_towards_the_limit(tokenizer) -> None:  # noqa: ANN001
    builder = PromptBuilder(PromptConfig(name="terse", history_length=8), tokenizer)
    plain = builder.build("put a mug in desk.", PAST, OBSERVATION)
    prefaced = builder.build("put a mug in desk.", PAST, OBSERVATION, "look: fridge 1\n\n")
    head = "<|im_start|>user\n"
    assert prefaced.text == plain.text.replace(head, head + "look: fridge 1\n\n")
    assert prefaced.ids == builder.chat("look: fridge 1\n\n" + _body(plain.text)).ids

    tight = builder.limited_to(len(plain.ids))
    assert tight.build("put a mug in desk.", PAST, OBSERVATION) == plain
    shortened = tight.build("put a mug in desk.", PAST, OBSERVATION, "look: fridge 1\n\n")
    assert "look: fridge 1" in shortened.text
    assert "go to desk 1 > nothing" not in shortened.text


def _body(chat: str) -> str:
    return chat.removeprefix("<|im_start|>user\n").partition("<|im_end|>")[0]
