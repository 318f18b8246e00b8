"""Which game logic the native engine knows, by content hash.

A `game.tw-pddl` file carries its own PDDL domain and text grammar. The native engine has the ALFRED
rules written in Python, so it may play a file only when domain and grammar are, byte for byte, ones
whose behavior it reproduces. Two pairs are known: `release` (the games of ALFWorld's official
json_2.1.1 release) and `package` (the templates inside the alfworld 0.4.2 wheel, which generated
games may use). They differ in one rule: `release` also cleans at a receptacle of SinkType.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

RELEASE_DOMAIN: Final = "0af55e7f92d12b09d28515aa730e4d03fddd17228ef1fd7b18a3ee8ba49b27b9"
PACKAGE_DOMAIN: Final = "f1473041ed01da514de1f87adfd7ef0804862361f83ccf63c75e43633b0eb280"
RELEASE_GRAMMAR: Final = "a2cbe07fbdcc66b24271ae9400e934488a273106a54316402cf44365ea32d3ff"
PACKAGE_GRAMMAR: Final = "0471afd6171c45efe1540724968504067aec09010695dde5e1632c1338954fd8"

CLEANING_TYPES: Final[dict[str, frozenset[str]]] = {
    RELEASE_DOMAIN: frozenset({"sinktype", "sinkbasintype"}),
    PACKAGE_DOMAIN: frozenset({"sinkbasintype"}),
}
"""Receptacle types (lower case) that `clean` accepts, per known domain."""

GRAMMARS: Final = frozenset({RELEASE_GRAMMAR, PACKAGE_GRAMMAR})
"""Known grammars. Their texts are the same once rendered (the two write `help` differently)."""

_TASK = re.compile(r'Your task is to: ([^"]*)')
_PLAIN_TASK = re.compile(r"[A-Za-z0-9 .,'()?!&/:_-]+")


@dataclass(frozen=True, slots=True)
class Logic:
    """What the native engine needs to know about a file's domain and grammar."""

    cleaning_types: frozenset[str]
    task_text: str


class UnsupportedGame(ValueError):
    """The native engine does not know this game's logic; the reference engine plays it."""


def domain_hash(text: str) -> str:
    """SHA-256 of the PDDL domain."""
    return hashlib.sha256(text.encode()).hexdigest()


def grammar_hash(text: str) -> str:
    """SHA-256 of the grammar with the task sentence replaced by `TASK`."""
    masked = _TASK.sub("Your task is to: TASK", text)
    return hashlib.sha256(masked.encode()).hexdigest()


def task_sentence(grammar: str) -> str:
    """The text behind `Your task is to: ` in a grammar, e.g. `put a clean mug in cabinet.`"""
    match = _TASK.search(grammar)
    if match is None:
        raise UnsupportedGame("the grammar has no sentence `Your task is to: ...`")
    return match.group(1)


def recognize(domain: str, grammar: str) -> Logic:
    """The logic of a file, or `UnsupportedGame` with the hash that is not known."""
    cleaning_types = CLEANING_TYPES.get(domain_hash(domain))
    if cleaning_types is None:
        raise UnsupportedGame(f"unknown PDDL domain, sha256 {domain_hash(domain)[:16]}")
    if grammar_hash(grammar) not in GRAMMARS:
        raise UnsupportedGame(f"unknown text grammar, sha256 {grammar_hash(grammar)[:16]}")
    sentence = task_sentence(grammar)
    if not _PLAIN_TASK.fullmatch(sentence) or sentence.startswith(" ") or "//" in sentence:
        raise UnsupportedGame(f"the task sentence uses grammar symbols: {sentence!r}")
    return Logic(cleaning_types, sentence)
