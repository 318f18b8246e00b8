"""Possessives, lower case, stop words, Porter's exceptions."""

from __future__ import annotations

import pytest

from sero_core.envs.webshop.analysis import STOP_WORDS, analyze
from sero_core.envs.webshop.porter import stem

STEMS = {
    "caresses": "caress", "ponies": "poni", "ties": "ti", "caress": "caress", "cats": "cat",
    "feed": "feed", "agreed": "agre", "plastered": "plaster", "bled": "bled", "motoring": "motor",
    "sing": "sing", "conflated": "conflat", "troubled": "troubl", "sized": "size",
    "hopping": "hop", "tanned": "tan", "falling": "fall", "hissing": "hiss", "fizzed": "fizz",
    "failing": "fail", "filing": "file", "happy": "happi", "sky": "sky", "relational": "relat",
    "conditional": "condit", "rational": "ration", "valenci": "valenc", "digitizer": "digit",
    "conformabli": "conform", "radicalli": "radic", "differentli": "differ", "vileli": "vile",
    "analogousli": "analog", "vietnamization": "vietnam", "predication": "predic",
    "operator": "oper", "feudalism": "feudal", "decisiveness": "decis", "hopefulness": "hope",
    "callousness": "callous", "formaliti": "formal", "sensitiviti": "sensit",
    "sensibiliti": "sensibl", "triplicate": "triplic", "formative": "form", "formalize": "formal",
    "electriciti": "electr", "electrical": "electr", "hopeful": "hope", "goodness": "good",
    "revival": "reviv", "allowance": "allow", "inference": "infer", "airliner": "airlin",
    "gyroscopic": "gyroscop", "adjustable": "adjust", "defensible": "defens", "irritant": "irrit",
    "replacement": "replac", "adjustment": "adjust", "dependent": "depend", "adoption": "adopt",
    "homologou": "homolog", "communism": "commun", "activate": "activ", "angulariti": "angular",
    "homologous": "homolog", "effective": "effect", "bowdlerize": "bowdler", "probate": "probat",
    "rate": "rate", "cease": "ceas", "controll": "control", "roll": "roll",
    # what the author's program does otherwise than the paper
    "is": "is", "as": "as", "possibly": "possibl", "sensibly": "sensibl",
    "archaeology": "archaeolog",
    "apology": "apolog", "logi": "logi", "yes": "ye", "ies": "i",
}  # fmt: skip
"""The examples of Porter's paper and program, worked out by hand."""


@pytest.mark.parametrize(("word", "expected"), STEMS.items())
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Women's MEN’S kids＇s bosses' 's s's", ["women", "men", "kid", "boss", "s", "s"]),
        ("İstanbul ΣΑΣ Straße", ["istanbul", "σασ", "straße"]),
        ("The and OF it", []),
        ("𝐱ing 😀s", ["𝐱ing", "😀", "s"]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_stop_words() -> None:
    assert len(STOP_WORDS) == 33
    assert analyze(" ".join(sorted(STOP_WORDS))) == []
