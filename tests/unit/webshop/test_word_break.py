"""Tokens as Lucene's StandardTokenizer cuts them, beyond what the golden lists hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.envs.webshop.word_break import _Scanner, words

TOKENS = [
    ("it's 3.5 in. (US$5,000.10) a.b a:b 1:2 x,y", "it's 3.5 in US 5,000.10 a.b a:b 1 2 x y"),
    ("snake_case _x_ __ a__1 1_a", "snake_case _x_ a__1 1_a"),
    ("women’s O’Neill a·b a‧b", "women’s O’Neill a·b a‧b"),
    ("co\u00adop e\u0301t\u00e9", "co\u00adop e\u0301t\u00e9"),
    ("字漢 ひら カタカナ 한국어 ไทย", "字 漢 ひ ら カタカナ 한국어 ไทย"),
    ("カタABC ABCカタ カ_A", "カタ ABC ABC カタ カ_A"),
    ("٣٫٥ ABC１２", "٣٫٥ ABC１２"),
    ('צה"ל ג\' גג\' א"ב"ג', "צה\"ל ג' גג' א\"ב ג"),
    ("a\u05d2'b\u05d2' .", "a\u05d2'b\u05d2'"),
    ("© ® ™ ☎ ✓ ★ •", "© ® ™ ☎ ★"),
    ("🇫🇷🇩🇪 🇫 🇫🇷🇩", "🇫🇷 🇩🇪 🇫🇷"),
    (
        "👍🏽👍 👩\u200d👩\u200d👧 ❤️ ❤\u200d🔥 x\u200d👧",
        "👍🏽 👍 👩\u200d👩\u200d👧 ❤️ ❤\u200d🔥 x\u200d 👧",
    ),
    ("1️⃣2 #️⃣ *⃣ # *", "1️⃣2 #️⃣ *⃣"),
    ("ℹ️ ℹabc ℹ\u200d👧", "ℹ️ ℹabc ℹ\u200d👧"),
    ("々 々山 仝", "々 々 山 仝"),
    ("\ud800 a\ud800b", "a b"),
]


@pytest.mark.parametrize(("text", "tokens"), TOKENS)
def test_tokens(text: str, tokens: str) -> None:
    assert words(text) == tokens.split(" ")


def test_subdivision_flag_is_one_token() -> None:
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    assert words(f"a {scotland} b") == ["a", scotland, "b"]


def test_hebrew_letter_after_a_double_quote_takes_no_single_quote() -> None:
    """Letter, double quote, letter is a unit that ends there: only a new unit may follow."""
    assert words("א\"ב'") == ['א"ב']
    assert words("a'ב'") == ["a'ב"]
    assert words("ב'a'ב'") == ["ב'a'ב"]


def test_long_tokens_come_in_pieces_of_255_units() -> None:
    assert [len(word) for word in words("x" * 600)] == [255, 255, 90]
    assert [len(word) for word in words("x" * 255)] == [255]
    assert [len(word) for word in words("𝐱" * 200)] == [127, 73]
    assert [len(word) for word in words("é" * 256)] == [255, 1]
    assert [len(word) for word in words("a.b" * 200)] == [255, 255, 90]
    # the low lines before a letter beyond the window are no token: the scanner goes on one by one
    assert [len(word) for word in words("_" * 300 + "a")] == [255]


@given(st.text(alphabet="ab1_.:,;'\" -", max_size=60))
def test_the_short_cut_for_ascii_equals_the_grammar(text: str) -> None:
    assert words(text) == _Scanner.shared().words(text)


@given(st.text(max_size=40))
def test_any_text_has_tokens_in_order(text: str) -> None:
    place = 0
    for word in words(text):
        place = text.index(word, place) + len(word)
