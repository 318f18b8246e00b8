"""WebShop's prompts: the protocol's parts, the 13,000 character rule, pages too long, parsing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sero_core.policy import load_policy
from sero_core.prompts import PastStep, PromptBuilder, body_text, task_text
from sero_core.prompts_webshop import MAX_CHARS_WITH_HISTORY
from sero_core.sections import PromptConfig
from sero_core.types import Observation

GOAL = "Get me a basket with size: small, and price lower than 30.00 dollars"
START = Observation(
    f"WebShop [SEP] Instruction: [SEP] {GOAL} [SEP] Search", ("search[<your query>]",)
)
RESULTS = Observation(
    f"Instruction: [SEP] {GOAL} [SEP] Back to Search [SEP] Page 1 (Total results: 2) [SEP] Next > "
    "[SEP] B0AAAAAAAA [SEP] Woven Basket [SEP] $19.99 [SEP] B0BBBBBBBB [SEP] Red Basket [SEP] "
    "$5.0 to $9.0",
    ("click[back to search]", "click[next >]", "click[b0aaaaaaaa]", "click[b0bbbbbbbb]"),
)
ITEM = Observation(
    f"Instruction: [SEP] {GOAL} [SEP] Back to Search [SEP] < Prev [SEP] size [SEP] small [SEP] "
    "Woven Basket [SEP] Price: $19.99 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] "
    "Reviews [SEP] Buy Now",
    (
        "click[back to search]",
        "click[< prev]",
        "click[description]",
        "click[features]",
        "click[reviews]",
        "click[buy now]",
        "click[small]",
    ),
)
PAST = [PastStep(START.text, "search[woven basket]"), PastStep(RESULTS.text, "click[b0aaaaaaaa]")]


@pytest.fixture(scope="module")
def tokenizer():  # noqa: ANN201 - transformers has no useful type here
    return load_policy("demo").tokenizer


@pytest.mark.parametrize("observation", [START, RESULTS, ITEM])
def test_task_text_in_both_modes(observation: Observation) -> None:
    assert task_text(observation.text) == GOAL
    assert task_text(observation.text.replace(" [SEP] ", "\n")) == GOAL


def test_standard_first_step() -> None:
    text = body_text("standard", GOAL, [], 0, START, "webshop")
    assert text.splitlines()[:6] == [
        "You are an expert autonomous agent operating in the WebShop e-commerce environment.",
        f"Your task is to: {GOAL}.",
        "Your current observation is: 'Search'",
        "Your admissible actions of the current situation are: [",
        "'search[<your query>]'",
        "].",
    ]
    assert "<think>" in text
    assert "<action>" in text


def test_standard_later_step_quotes_parts_and_numbers_steps() -> None:
    lines = body_text("standard", GOAL, PAST, 1, ITEM, "webshop").splitlines()
    assert "already taken 2 step(s)" in lines[2]
    assert lines[3].startswith(
        "[Observation 2: ''Back to Search' [SEP] 'Page 1 (Total results: 2)'"
    )
    assert lines[3].endswith(" [SEP] '$5.0 to $9.0'', Action 2: 'click[b0aaaaaaaa]']")
    assert lines[4].startswith(
        "You are now at step 3 and your current observation is: 'Back to Search' [SEP] '< Prev'"
    )
    assert GOAL not in "\n".join(lines[2:])


def test_history_is_dropped_above_13000_characters() -> None:
    past = [PastStep(RESULTS.text + "x" * MAX_CHARS_WITH_HISTORY, "click[b0aaaaaaaa]")]
    assert body_text("standard", GOAL, past, 1, ITEM, "webshop") == body_text(
        "standard", GOAL, [], 0, ITEM, "webshop"
    )


def test_terse_puts_a_product_on_a_line_and_clickables_in_brackets() -> None:
    assert body_text("terse", GOAL, PAST[:1], 1, RESULTS, "webshop").splitlines() == [
        f"task: {GOAL.lower()}",
        "> search[woven basket]",
        "[back to search] [next >]",
        "page 1 (total results: 2)",
        "[b0aaaaaaaa] woven basket $19.99",
        "[b0bbbbbbbb] red basket $5.0 to $9.0",
    ]
    assert body_text("terse", GOAL, PAST, 2, ITEM, "webshop").splitlines()[3:] == [
        "[back to search] [< prev] [description] [features] [reviews]",
        "size",
        "[small]",
        "woven basket",
        "price: $19.99",
        "[buy now]",
    ]


def test_a_page_too_long_is_cut(tokenizer) -> None:  # noqa: ANN001
    config = PromptConfig(name="terse", max_prompt_tokens=400)
    builder = PromptBuilder(config, tokenizer, "webshop")
    long = replace(ITEM, text=ITEM.text + " [SEP] description" * 500)
    prompt = builder.build(GOAL, PAST, long)
    assert len(prompt.ids) <= 400
    assert prompt.text.removesuffix("<|im_end|>\n<|im_start|>assistant\n").endswith("...")
    options = tuple(f"click[option {i}]" for i in range(500))
    standard = PromptConfig(name="standard", max_prompt_tokens=2000)
    prompt = PromptBuilder(standard, tokenizer, "webshop").build(
        GOAL, PAST, replace(long, admissible=options)
    )
    assert len(prompt.ids) <= 2000
    assert "'click[option 0]'" in prompt.text
    assert "'click[option 499]'" not in prompt.text


def test_an_answer_without_tags_gives_its_last_20_characters(tokenizer) -> None:  # noqa: ANN001
    builder = PromptBuilder(PromptConfig(name="standard"), tokenizer, "webshop")
    answer = builder.parse("I would now like to CLICK[Buy Now]")
    assert (answer.action, answer.is_valid) == ("like to click[buy now]"[-20:], False)
    answer = builder.parse("<think>x</think><action>Search[Red Shoes]</action>")
    assert (answer.action, answer.is_valid) == ("search[red shoes]", True)
