"""T2: the tokens at the borders of a chat template, neither dropped nor doubled.

The newline after `<|im_end|>`, a second beginning-of-text token, a system message that is missing,
a thought that the template strips.
"""

from __future__ import annotations

import pytest

from sero_core.policy import DEMO_POLICY, load_tokenizer
from sero_core.prompts import PastStep, PromptBuilder
from sero_core.sections import PromptConfig
from sero_core.types import Observation
from tests.support.qwen_template import QWEN25_TEMPLATE, SPECIAL, by_hand, byte_tokenizer

OBSERVATION = Observation("The fridge 1 is closed.", ("open fridge 1", "look"))
PAST = [PastStep("Room. Your task is to: cool an egg.", "go to fridge 1")]
SYSTEM = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n"
)
USER = (
    "<|im_start|>user\ntask: cool an egg\ngo to fridge 1 > closed\ncan:\nopen fridge 1<|im_end|>\n"
)
ASSISTANT = "<|im_start|>assistant\n"
TERSE = PromptConfig(name="terse", history_length=4)


def test_t02_golden_ids_of_qwens_template() -> None:
    """Written out by hand: system message, one newline after each <|im_end|>, no token before."""
    prompt = PromptBuilder(TERSE, byte_tokenizer(QWEN25_TEMPLATE)).build(
        "cool an egg.", PAST, OBSERVATION
    )
    assert prompt.text == SYSTEM + USER + ASSISTANT
    assert prompt.ids == by_hand(SYSTEM + USER + ASSISTANT)
    assert prompt.ids[:8] == (257, *b"system\n")
    assert prompt.ids[-13:] == (258, 10, 257, *b"assistant", 10)


def test_t02_golden_ids_of_the_demos_template() -> None:
    tokenizer = load_tokenizer(DEMO_POLICY)
    prompt = PromptBuilder(TERSE, tokenizer).build("cool an egg.", PAST, OBSERVATION)
    assert prompt.text == USER + ASSISTANT
    start, end = (tokenizer.convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>"))
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    assert prompt.ids[0] == start
    assert prompt.ids[prompt.ids.index(end) :][:3] == (end, *newline, start)
    assert prompt.ids.count(start) == 2
    assert prompt.ids.count(end) == 1
    assert tokenizer.decode(prompt.ids) == prompt.text


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_t02_prompt_and_answer_are_the_templates_own_dialogue(turns: int) -> None:
    """The ids of prompt and answer, with the newline that nobody samples, are exactly the ids of
    the whole dialogue up to the same turn, thoughts included, for one to three turns."""
    tokenizer = byte_tokenizer(QWEN25_TEMPLATE)
    messages: list[dict[str, str]] = []
    ids: tuple[int, ...] = ()
    for turn in range(turns):
        messages.append({"role": "user", "content": f"observation {turn}"})
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert prompt[: len(ids)] == ids, "what came before stays a prefix"
        answer = f"<think>so {turn}</think><action>look</action>"
        sampled = (*by_hand(answer), SPECIAL["<|im_end|>"])
        ids = (*prompt, *sampled, *by_hand("\n"))
        messages.append({"role": "assistant", "content": answer})
        whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert ids == tuple(whole)


def test_t02_a_rendered_action_ends_where_the_template_ends_it() -> None:
    """An oracle's answer is followed by <|im_end|>, as a sampled one, and by no newline."""
    tokenizer = byte_tokenizer(QWEN25_TEMPLATE)
    rendered = PromptBuilder(TERSE, tokenizer).render("open fridge 1")
    assert rendered.token_ids == by_hand("<action>open fridge 1</action><|im_end|>")
    marked = bytes(i for i, s in zip(rendered.token_ids, rendered.scored, strict=True) if s)
    assert marked == b"open fridge 1"


def test_t02_no_second_beginning_of_text() -> None:
    """A template that begins with it and a tokenizer that adds it: once, not twice."""
    template = "{{ bos_token }}" + QWEN25_TEMPLATE
    tokenizer = byte_tokenizer(template, adds_bos=True)
    assert tokenizer("x")["input_ids"] == [256, ord("x")]
    prompt = PromptBuilder(TERSE, tokenizer).build("cool an egg.", PAST, OBSERVATION)
    assert prompt.ids == (256, *by_hand(SYSTEM + USER + ASSISTANT))
    rendered = PromptBuilder(TERSE, tokenizer).render("look")
    assert 256 not in rendered.token_ids
