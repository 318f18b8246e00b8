"""What a game asks for: from its file's PDDL goal, or from the sentence that a player reads."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from sero_core.envs.alfworld.plan_state import LIGHT, SIMPLE, TWO, Goal
from sero_core.types import OracleError

_SENTENCES = (
    (LIGHT, r"look at (\w+) under the (\w+)"),
    (LIGHT, r"examine the (\w+) with the (\w+)"),
    ("pick_clean_then_place_in_recep", r"put a clean (\w+) (?:in|on) (\w+)"),
    ("pick_clean_then_place_in_recep", r"clean some (\w+) and put it (?:in|on) (\w+)"),
    ("pick_heat_then_place_in_recep", r"put a hot (\w+) (?:in|on) (\w+)"),
    ("pick_heat_then_place_in_recep", r"heat some (\w+) and put it (?:in|on) (\w+)"),
    ("pick_cool_then_place_in_recep", r"put a cool (\w+) (?:in|on) (\w+)"),
    ("pick_cool_then_place_in_recep", r"cool some (\w+) and put it (?:in|on) (\w+)"),
    (TWO, r"put two (\w+) (?:in|on) (\w+)"),
    (TWO, r"find two (\w+) and put them (?:in|on) (\w+)"),
    (SIMPLE, r"put (?:a|some) (\w+) (?:in|on) (\w+)"),
)
"""ALFWorld's task sentences (alfworld.gen.goal_library), the more special ones first."""

_TASK = re.compile(r"Your task is to: (.+?)\.?\s*(?:\n|$)")
_MARKS = {
    "istoggled": LIGHT,
    "isclean": "pick_clean_then_place_in_recep",
    "ishot": "pick_heat_then_place_in_recep",
    "iscool": "pick_cool_then_place_in_recep",
}


def goal_from_sentence(text: str) -> Goal:
    """The goal that the first observation states; OracleError for a sentence of another kind."""
    match = _TASK.search(text)
    if match is None:
        raise OracleError("no sentence 'Your task is to: …' in the first observation")
    sentence = match.group(1).lower()
    for task_type, pattern in _SENTENCES:
        found = re.fullmatch(pattern, sentence)
        if found is not None:
            return Goal(task_type, found.group(1), found.group(2))
    raise OracleError(f"the task sentence is of no known kind: {sentence!r}")


@lru_cache(maxsize=4096)
def goal_from_file(path: str, content_hash: str) -> Goal:
    """The goal of a game file. `content_hash` keys the cache, so a rewritten file is read again."""
    game = json.loads(Path(path).read_text(encoding="utf-8"))
    return goal_from_problem(game["pddl_problem"])


def goal_from_problem(problem: str) -> Goal:
    """The goal of a PDDL problem: the six official formulas, whatever their spacing."""
    formula = problem.lower()
    formula = formula[formula.index("(:goal") :]
    objects = dict(re.findall(r"\(objecttype \?(\w+) (\w+?)type\)", formula))
    parent = re.search(r"\(receptacletype \?r (\w+?)type\)", formula)
    marks = [task for mark, task in _MARKS.items() if f"({mark} " in formula]
    if marks == [LIGHT] and set(objects) == {"ot", "o"}:
        return Goal(LIGHT, objects["o"], objects["ot"])
    if parent is None or len(set(objects.values())) != 1:
        raise OracleError(f"the goal is of no known kind: {' '.join(formula.split())[:200]}")
    target = next(iter(objects.values()))
    task_type = marks[0] if marks else (TWO if len(objects) == 2 else SIMPLE)
    return Goal(task_type, target, parent.group(1))
