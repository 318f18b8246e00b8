"""A saved policy loads back exactly: the tokenizer gives the ids it was trained with (T1)."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from sero_core.policy import DEMO_POLICY, load_policy, save_policy

TEXT = "<|im_start|>user\ngo to shelf 3 > mug 1, egg 12\n<action>open fridge 1</action><|im_end|>\n"


def test_loaded_ids_are_those_of_the_stored_tokenizer(tmp_path: Path) -> None:
    stored = Tokenizer.from_file(str(DEMO_POLICY / "tokenizer.json"))
    policy = load_policy("demo")
    expected = stored.encode(TEXT, add_special_tokens=False).ids
    assert policy.tokenizer(TEXT, add_special_tokens=False)["input_ids"] == expected
    save_policy(policy, tmp_path)
    again = load_policy(str(tmp_path))
    assert again.tokenizer(TEXT, add_special_tokens=False)["input_ids"] == expected
    assert again.tokenizer.decode(expected) == TEXT
