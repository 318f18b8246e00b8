"""A small tagger for the nouns of product titles, for machines without spaCy.

A linear model decides per token from the token, its endings and shape, and its neighbours. It was
trained by `scripts/train_noun_tagger.py` (averaged perceptron, Freund and Schapire 1999) to repeat
what spaCy's en_core_web_sm 3.8 says of made-up titles; the weights are `data/noun_tagger.json`.
How often the two agree is in docs/webshop.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

NAME: Final = "built-in tagger 1"
CACHED_TOKENS: Final = 1 << 14
_START: Final = "<"
_END: Final = ">"

_WHOLE: Final = frozenset({"w/", "w/o", "C++", "c++"})
_BEFORE = re.compile(r"""\.\.\.|[(\[{<!?…"'‘’“”„«»$£€¥₹#&§%=—–,;:*|/`~+\\@]|[^\w\s.\-^]""")
_AFTER = re.compile(
    r"""(?:'[sS]|’[sS]|\.\.\.|[)\]}>!?…"'‘’“”„«»$£€,;:*|=—–~`&%]|(?<=[0-9])\+"""
    r"""|(?<=[a-z%²\-+'"”“»])\.|(?<=[A-Z]{2})\.|[^\w\s.\-+/^@#\\]|(?<=[0-9])(?:km|cm|mm|dm|ha|µm|nm"""
    r"""|yd|in|ft|kg|mg|µg|g|lb|oz|mph|hPa|Pa|mbar|mb|MB|kb|KB|gb|GB|tb|TB|T|G|M|K|m|t))$"""
)
_WITHIN = re.compile(
    r"""\.\.\.|…|(?<=[0-9])[+*^](?=[0-9-])|(?<=[a-z])\.(?=[A-Z])|(?<=[^\W\d_]),(?=[^\W\d_])"""
    r"""|(?<=\w)(?:--|-|–|—|~)(?=[^\W\d_])|(?<=\w)[:<>=/](?=[^\W\d_])"""
    r"""|[^\w\s.,:;\-/*@\\)\]}>|~^'’"“”‘&+#%$(\[{<!?=`]"""
)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each feature; `words` are those that have a feature of their own."""

    by_feature: dict[str, int]
    words: frozenset[str]


def nouns_of(title: str) -> list[str]:
    """The lower-cased nouns of a title in order, duplicates kept."""
    tokens = split_title(title)
    around = [_START, *tokens, _END]
    return [
        token.lower()
        for before, token, after in zip(around, tokens, around[2:], strict=False)
        if _own_score(token) + _score_before(before) + _score_after(after) + _pair(token, after) > 0
    ]


def features(tokens: Sequence[str], place: int, words: Collection[str]) -> list[str]:
    """What the model knows of a token. `words` limits the features that name a word."""
    before = tokens[place - 1] if place else _START
    after = tokens[place + 1] if place + 1 < len(tokens) else _END
    token = tokens[place]
    return [
        *_own_features(token, words),
        *_features_before(before, words),
        *_features_after(after, words),
        _pair_feature(token, after),
    ]


def _own_features(token: str, words: Collection[str]) -> list[str]:
    low, shape = token.lower(), _shape(token)
    named = [f"word {low}"] if low in words else []
    ends = [f"end3 {low[-3:]}", f"end2 {low[-2:]}", f"end1 {low[-1:]} {shape}"]
    return ["bias", f"shape {shape}", *ends, *named]


def _features_before(token: str, words: Collection[str]) -> list[str]:
    low = token.lower()
    named = [f"word before {low}"] if low in words else []
    return [f"shape before {_shape(token)}", f"end2 before {low[-2:]}", *named]


def _features_after(token: str, words: Collection[str]) -> list[str]:
    low = token.lower()
    named = [f"word after {low}"] if low in words else []
    return [f"shape after {_shape(token)}", f"end2 after {low[-2:]}", *named]


def _pair_feature(token: str, after: str) -> str:
    return f"shapes {_shape(token)} {_shape(after)}"


@lru_cache(maxsize=CACHED_TOKENS)
def _own_score(token: str) -> int:
    return _sum(_own_features(token, _weights().words))


@lru_cache(maxsize=CACHED_TOKENS)
def _score_before(token: str) -> int:
    return _sum(_features_before(token, _weights().words))


@lru_cache(maxsize=CACHED_TOKENS)
def _score_after(token: str) -> int:
    return _sum(_features_after(token, _weights().words))


def _pair(token: str, after: str) -> int:
    return _weights().by_feature.get(_pair_feature(token, after), 0)


def _sum(names: Sequence[str]) -> int:
    weights = _weights().by_feature
    return sum(weights.get(name, 0) for name in names)


def split_title(title: str) -> list[str]:
    """Tokens, close to spaCy's: punctuation, possessives, units and hyphens are split off."""
    tokens: list[str] = []
    for part in title.split():
        first: list[str] = []
        last: list[str] = []
        while part and part not in _WHOLE:
            if mark := _BEFORE.match(part):
                first.append(mark[0])
                part = part[mark.end() :]
            elif mark := _AFTER.search(part):
                last.append(mark[0])
                part = part[: mark.start()]
            else:
                break
        tokens += [*first, *_split_within(part), *reversed(last)]
    return tokens


def _split_within(part: str) -> list[str]:
    if part in _WHOLE:
        return [part]
    tokens: list[str] = []
    start = 0
    for mark in _WITHIN.finditer(part):
        tokens += [part[start : mark.start()], mark[0]]
        start = mark.end()
    return [token for token in [*tokens, part[start:]] if token]


@lru_cache(maxsize=CACHED_TOKENS)
def _shape(token: str) -> str:
    """Letters as X and x, digits as d, runs shortened to one."""
    marks = re.sub("[0-9]", "d", re.sub("[a-z]", "x", re.sub("[A-Z]", "X", token)))
    return re.sub(r"(.)\1+", r"\1", marks)[:6]


@cache
def _weights() -> Weights:
    text = files("sero_core.envs.webshop").joinpath("data/noun_tagger.json").read_text("utf-8")
    table: dict[str, int] = json.loads(text)
    words = (name.split(" ")[-1] for name in table if name.startswith("word "))
    return Weights(table, frozenset(words))
