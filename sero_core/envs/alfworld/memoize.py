"""Make the stock engine faster for long comparisons, without changing what it does.

A step of the stock engine spends nearly all its time parsing the same small strings again, and a
game is translated four times. `memoize_stock_engine` replaces its pure functions by memoizing ones:

- the text grammar's parser (the symbols handed out are copies, because the engine writes to them);
- the query parser (its rules are only read);
- the translation of a game for play, which is done once per game; the second translation serves
  only the planner, which nobody asks here, and is answered with the first.

Only the parity command uses this, and `--plain` switches it off. Never in a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache

_is_done = False


def memoize_stock_engine() -> None:
    """Patch the stock engine in this process, once."""
    global _is_done
    if _is_done:
        return
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse = textgen._parse_and_convert  # pyright: ignore[reportPrivateUsage]
    textgen._parse_and_convert = _copying(parse)  # pyright: ignore[reportPrivateUsage]
    Rule.parse_conjunctive_query = staticmethod(lru_cache(4096)(Rule.parse_conjunctive_query))
    fast_downward.pddl2sas = _translating_once(fast_downward.pddl2sas)
    _is_done = True


def _copying(parse: Callable[..., object]) -> Callable[..., object]:
    @lru_cache(8192)
    def cached(text: str, rule_name: str) -> object:
        return parse(text, rule_name=rule_name)

    def parse_again(text: str, rule_name: str, **_trace: object) -> object:
        return deepcopy(cached(text, rule_name))

    return parse_again


def _translating_once(translate: Callable[..., object]) -> Callable[..., object]:
    @lru_cache(2)
    def cached(domain: str, problem: str) -> object:
        return translate(domain, problem)

    def translate_again(domain: str, problem: str, **_options: object) -> object:
        return cached(domain, problem)

    return translate_again
