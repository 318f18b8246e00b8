"""Searching branches: filters, words, order, and how many of each kind match."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, cast, func, literal_column, select

from backend.db import paging
from backend.db.models import Run
from backend.db.queries.episodes import permalink, task_of
from backend.db.records import SEARCH, Branch, BranchStep, StoredText
from backend.schemas import BranchFacets, BranchPage, BranchSort, BranchSummary

_TABLE = Branch.__table__.c
COLUMNS = (*_TABLE, Run.name.label("run_name"))
_LAST_WEIGHT = func.coalesce(Branch.weights[Branch.num_steps], cast(1.0, Double))
_TAIL = (
    paging.SortKey(_TABLE.run_id, int, is_ascending=False),
    paging.SortKey(_TABLE.iteration, int, is_ascending=False),
    paging.SortKey(_TABLE.ordinal, int, is_ascending=True),
    paging.SortKey(_TABLE.branch_id, str, is_ascending=True),
)
_HEADS: dict[str, ColumnElement[float] | ColumnElement[int]] = {
    "effective_depth": _TABLE.effective_depth,
    "num_steps": _TABLE.num_steps,
    "last_weight": _LAST_WEIGHT,
}
_FACETS = ("outcome", "task_type", "split", "oracle", "is_episode_won")
_WORD = re.compile(r'"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class BranchFilter:
    """None or empty = any. `min_depth`: at least that many branch steps.

    `min_weight`, `max_weight`: of the step at depth `weight_depth`, None: of the last step.
    `words`: all of them occur in actions, task or reason, each as the beginning of a word; "in
    quotes" as a phrase. `observation`: occurs in an observation (slow: give a run, too).
    """

    run_ids: Sequence[int] = ()
    job_id: int | None = None
    iteration: int | None = None
    min_iteration: int | None = None
    max_iteration: int | None = None
    task_types: Sequence[str] = ()
    task_id: str | None = None
    split: str | None = None
    oracle: str | None = None
    outcomes: Sequence[str] = ()
    is_episode_won: bool | None = None
    differs_at_root: bool | None = None
    min_depth: int | None = None
    min_effective_depth: float | None = None
    max_effective_depth: float | None = None
    weight_depth: int | None = None
    min_weight: float | None = None
    max_weight: float | None = None
    words: str | None = None
    observation: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        equal: dict[str, object] = {
            "job_id": self.job_id,
            "iteration": self.iteration,
            "task_id": self.task_id,
            "split": self.split,
            "oracle": self.oracle,
            "is_episode_won": self.is_episode_won,
            "differs_at_root": self.differs_at_root,
        }
        found = [_TABLE[name] == value for name, value in equal.items() if value is not None]
        lists: dict[str, Sequence[object]] = {
            "run_id": self.run_ids,
            "task_type": self.task_types,
            "outcome": self.outcomes,
        }
        for name, values in lists.items():
            if len(values) == 1:
                found.append(_TABLE[name] == values[0])
            elif values:
                found.append(_TABLE[name].in_(values))
        found += _between(Branch.iteration, self.min_iteration, self.max_iteration)
        found += _between(Branch.num_steps, self.min_depth, None)
        found += _between(
            Branch.effective_depth, self.min_effective_depth, self.max_effective_depth
        )
        weight = (
            _LAST_WEIGHT if self.weight_depth is None else Branch.weights[self.weight_depth + 1]
        )
        found += _between(weight, self.min_weight, self.max_weight)
        if (query := word_query(self.words or "")) is not None:
            found.append(literal_column(SEARCH).op("@@")(func.to_tsquery("simple", query)))
        if self.observation:
            found.append(_has_observation(self.observation))
        return found


def word_query(words: str) -> str | None:
    """A tsquery of all words, each as a prefix; quoted ones as a phrase. None: no word in it."""
    parts: list[str] = []
    for token in _WORD.findall(words):
        bare = re.findall(r"\w+", token)
        if not bare:
            continue
        is_phrase = token.startswith('"')
        parts.append(" <-> ".join(bare) if is_phrase else " & ".join(f"{w}:*" for w in bare))
    return " & ".join(f"({part})" for part in parts) or None


def _between(
    column: ColumnElement[Any] | Any,  # noqa: ANN401
    low: float | None,
    high: float | None,
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if low is not None:
        found.append(column >= low)
    if high is not None:
        found.append(column <= high)
    return found


def _has_observation(needle: str) -> ColumnElement[bool]:
    return (
        select(1)
        .select_from(BranchStep)
        .join(StoredText, StoredText.id == BranchStep.observation_id)
        .where(
            BranchStep.run_id == Branch.run_id,
            BranchStep.branch_id == Branch.branch_id,
            StoredText.text.icontains(needle, autoescape=True),
        )
        .exists()
    )


def list_branches(
    connection: Connection,
    wanted: BranchFilter,
    *,
    sort: BranchSort = "newest",
    limit: int,
    cursor: str | None,
    has_facets: bool = False,
) -> BranchPage:
    """Newest run and iteration first, or by a column. `num_total` counts the runs' branches.

    Errors: `paging.InvalidCursor`.
    """
    conditions, order = wanted.conditions(), _order(sort)
    rows = [
        dict(row)
        for row in connection.execute(
            select(*COLUMNS, *([order[0].column.label("sort_head")] if len(order) > 4 else []))
            .join(Run, Run.id == Branch.run_id)
            .where(*conditions, *([paging.after(order, cursor)] if cursor else []))
            .order_by(*paging.order_by(order))
            .limit(limit + 1)
        ).mappings()
    ]
    next_cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        head = [last["sort_head"]] if len(order) > 4 else []
        tail = [last[key.column.name] for key in _TAIL]
        next_cursor = paging.encode([*head, *tail])
    count = select(func.count()).select_from(Branch)
    everything = BranchFilter(run_ids=wanted.run_ids).conditions()
    facets = _facets(connection, conditions) if has_facets else None
    num_matching = (
        sum(facets.outcome.values())
        if facets is not None
        else connection.execute(count.where(*conditions)).scalar_one()
    )
    return BranchPage(
        items=[BranchSummary.model_validate(summary(row)) for row in rows[:limit]],
        next_cursor=next_cursor,
        num_matching=num_matching,
        num_total=connection.execute(count.where(*everything)).scalar_one(),
        facets=facets,
    )


def _order(sort: BranchSort) -> tuple[paging.SortKey, ...]:
    head = _HEADS.get(sort.removeprefix("-"))
    if head is None:
        return _TAIL
    kind: type[int] | type[float] = int if sort.endswith("num_steps") else float
    return (paging.SortKey(head, kind, is_ascending=not sort.startswith("-")), *_TAIL)


def _facets(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> BranchFacets:
    """One pass over what matches."""
    columns = [_TABLE[name] for name in _FACETS]
    grouping = func.grouping(*columns).label("level")
    sets = func.grouping_sets(*columns)
    rows = connection.execute(
        select(*columns, grouping, func.count().label("num")).where(*conditions).group_by(sets)
    ).mappings()
    counts: dict[str, dict[str, int]] = {name: {} for name in _FACETS}
    for row in rows:
        # one bit is 0: that of the column which this row is grouped by
        index = next(
            i for i in range(len(_FACETS)) if not row["level"] >> (len(_FACETS) - 1 - i) & 1
        )
        name = _FACETS[index]
        value = row[name]
        key = (
            str(value).lower() if isinstance(value, bool) else "unknown" if value is None else value
        )
        counts[name][str(key)] = row["num"]
    return BranchFacets.model_validate(counts)


def summary(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "id": permalink(row["run_id"], row["branch_id"]), "task": task_of(row)}
