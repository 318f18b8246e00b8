"""Reading a PDDL problem, and grounding its goal over what the game can ever make true.

A grounded condition is nested tuples: `("atom", i)` with i an index into the game's dynamic atoms,
`("not", c)`, `("and", c, ...)`, `("or", c, ...)`; `("and",)` is true and `("or",)` is false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sero_core.envs.alfworld.domain import UnsupportedGame

Tree: TypeAlias = "list[Tree | str]"
Condition = tuple[object, ...]
Literal = Callable[[tuple[str, ...]], Condition]

TRUE: Condition = ("and",)
FALSE: Condition = ("or",)

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """A PDDL problem: objects in declaration order with their type, initial facts, goal."""

    types: dict[str, str]
    facts: tuple[tuple[str, ...], ...]
    goal: Tree

    def names_of(self, type_name: str) -> list[str]:
        return [name for name, kind in self.types.items() if kind == type_name]


def parse_problem(text: str) -> Problem:
    """Parse `(define (problem ...) ...)`. Names are lower case, as the planner reads them."""
    parts = {_word(part[0]): part for part in map(_tree, parse(text)[1:])}
    for key in (":objects", ":init", ":goal"):
        if key not in parts:
            raise UnsupportedGame(f"the PDDL problem has no {key} section")
    if ":metric" in parts:
        raise UnsupportedGame("the PDDL problem has a :metric")
    facts = tuple(tuple(map(_word, _tree(fact))) for fact in parts[":init"][1:])
    goal = parts[":goal"]
    if len(goal) != 2:
        raise UnsupportedGame(f"the goal must be one formula, got {len(goal) - 1}")
    return Problem(dict(typed_names(parts[":objects"][1:])), facts, _tree(goal[1]))


def parse(text: str) -> Tree:
    """The one s-expression in `text`, lower case."""
    stack: list[Tree] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) < 2:
                raise UnsupportedGame("the PDDL problem closes a bracket too many")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1 or isinstance(stack[0][0], str):
        raise UnsupportedGame("the PDDL problem is not one balanced s-expression")
    return stack[0][0]


def typed_names(words: Tree) -> Iterator[tuple[str, str]]:
    """`a b - t c - u` as (a, t), (b, t), (c, u)."""
    waiting: list[str] = []
    position = 0
    while position < len(words):
        word = _word(words[position])
        if word == "-":
            kind = _word(words[position + 1])
            yield from ((name, kind) for name in waiting)
            waiting = []
            position += 2
        else:
            waiting.append(word)
            position += 1
    if waiting:
        raise UnsupportedGame(f"names without a type: {waiting[:3]}")


def ground(goal: Tree, universe: Mapping[str, tuple[str, ...]], literal: Literal) -> Condition:
    """Replace quantifiers by names of `universe` (type -> names), literals by `literal(fact)`.

    Variables are bound one at a time; a conjunct whose variables are all bound, such as
    `(objectType ?o MugType)`, drops a name before the remaining variables multiply it.
    """
    return _Grounder(universe, literal).condition(goal, {})


def has_quantified_negation(goal: Tree) -> bool:
    """Whether a quantifier stands under `not`, or the goal uses `forall` or `imply`."""
    head = _word(goal[0]) if goal else "and"
    if head in ("forall", "imply"):
        return True
    if head == "not":
        return any(not isinstance(part, str) and _contains(part, "exists") for part in goal)
    return any(has_quantified_negation(part) for part in goal[1:] if not isinstance(part, str))


def has_quantifier(goal: Tree) -> bool:
    return _contains(goal, "exists") or _contains(goal, "forall") or _contains(goal, "or")


@dataclass(frozen=True, slots=True)
class _Grounder:
    universe: Mapping[str, tuple[str, ...]]
    literal: Literal

    def condition(self, tree: Tree, names: dict[str, str]) -> Condition:
        head = _word(tree[0]) if tree else "and"
        if head in ("and", "or"):
            return _join(head, (self.condition(_tree(part), names) for part in tree[1:]))
        if head == "not":
            return _negate(self.condition(_tree(tree[1]), names))
        if head == "imply":
            left = self.condition(_tree(tree[1]), names)
            return _join("or", iter((_negate(left), self.condition(_tree(tree[2]), names))))
        if head in ("exists", "forall"):
            variables = list(typed_names(_tree(tree[1])))
            joined = "or" if head == "exists" else "and"
            return self._quantified(joined, variables, _tree(tree[2]), names)
        return self._literal(tuple(map(_word, tree)), names)

    def _quantified(
        self, head: str, variables: list[tuple[str, str]], body: Tree, names: dict[str, str]
    ) -> Condition:
        if not variables:
            return self.condition(body, names)
        (variable, kind), rest = variables[0], variables[1:]
        if variable in names:
            raise UnsupportedGame(f"the goal binds {variable} twice")
        bound_names = {*names, variable}
        checks = [
            words
            for words in (_conjuncts(body) if head == "or" else ())
            if variable in words and all(w in bound_names for w in words if w.startswith("?"))
        ]
        parts: list[Condition] = []
        for value in self.universe.get(kind, ()):
            bound = {**names, variable: value}
            if all(self._literal(words, bound) != FALSE for words in checks):
                parts.append(self._quantified(head, rest, body, bound))
        return _join(head, iter(parts))

    def _literal(self, words: tuple[str, ...], names: dict[str, str]) -> Condition:
        unbound = [word for word in words if word.startswith("?") and word not in names]
        if unbound:
            raise UnsupportedGame(f"the goal uses unbound variables {unbound}")
        fact = tuple(names.get(word, word) for word in words)
        if fact[0] == "=":
            return TRUE if fact[1] == fact[2] else FALSE
        return self.literal(fact)


def _conjuncts(tree: Tree) -> Iterator[tuple[str, ...]]:
    """The positive literals that must hold for `tree` to hold, through `and` and `exists`."""
    head = _word(tree[0]) if tree else "and"
    if head == "and":
        for part in tree[1:]:
            yield from _conjuncts(_tree(part))
    elif head == "exists":
        yield from _conjuncts(_tree(tree[2]))
    elif head not in ("or", "not", "imply", "forall"):
        yield tuple(map(_word, tree))


def _join(head: str, parts: Iterator[Condition]) -> Condition:
    """Conjunction or disjunction with constants, nesting and duplicates folded away."""
    neutral, decisive = (TRUE, FALSE) if head == "and" else (FALSE, TRUE)
    kept: dict[Condition, None] = {}
    for part in parts:
        if part == decisive:
            return decisive
        if part == neutral:
            continue
        if part[0] == head:
            kept.update((inner, None) for inner in part[1:] if isinstance(inner, tuple))
        else:
            kept[part] = None
    if len(kept) == 1:
        return next(iter(kept))
    return (head, *kept)


def _negate(part: Condition) -> Condition:
    if part == TRUE:
        return FALSE
    return TRUE if part == FALSE else ("not", part)


def _contains(tree: Tree, word: str) -> bool:
    return any(part == word if isinstance(part, str) else _contains(part, word) for part in tree)


def _word(part: Tree | str) -> str:
    if not isinstance(part, str):
        raise UnsupportedGame(f"expected a name in the PDDL problem, got {part!r:.80}")
    return part


def _tree(part: Tree | str) -> Tree:
    if isinstance(part, str):
        raise UnsupportedGame(f"expected a list in the PDDL problem, got {part!r}")
    return part
