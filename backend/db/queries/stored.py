"""Rows as the wire format again: for jobs on stored rows, and for exports that can be pushed.

The payloads' fields have the columns' names; a text's column is `<field>_id`. So a field that a
later version adds to both comes back without a line here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Connection, Table, select

from backend.db.models import Base
from backend.db.records import (
    Branch,
    BranchStep,
    Checkpoint,
    Episode,
    EvalOutcome,
    EvalResult,
    Evaluation,
    Iteration,
    Metric,
    Rescore,
    Step,
)
from backend.db.texts import load_texts, parse_list
from sero_core.records import (
    BranchPayload,
    BranchStepPayload,
    CheckpointPayload,
    EpisodePayload,
    EvalResultPayload,
    EvaluationPayload,
    IterationPayload,
    OutcomePayload,
    RescorePayload,
    StepPayload,
    TaskPayload,
)
from sero_core.stored import StoredRows

PayloadT = TypeVar("PayloadT", bound=BaseModel)
Row = Mapping[str, Any]
LISTS = frozenset({"admissible"})


class MissingRows(Exception):
    """An episode or branch that a job names is not stored (any more)."""


def read_rows(
    connection: Connection, run_id: int, episode_ids: Sequence[str], branch_ids: Sequence[str]
) -> StoredRows:
    """The branches in the order asked for, and their episodes beside those named.

    Errors: `MissingRows`.
    """
    rows = _rows(connection, Branch, Branch.run_id == run_id, Branch.branch_id.in_(branch_ids))
    found = {branch.branch_id: branch for branch in _branches(connection, run_id, rows)}
    if missing := [name for name in branch_ids if name not in found]:
        raise MissingRows(f"run {run_id} has no branch {missing[0]} any more")
    branches = [found[name] for name in branch_ids]
    wanted = list(dict.fromkeys([*episode_ids, *(branch.episode_id for branch in branches)]))
    rows = _rows(connection, Episode, Episode.run_id == run_id, Episode.episode_id.in_(wanted))
    episodes = {episode.episode_id: episode for episode in _episodes(connection, run_id, rows)}
    if missing := [name for name in wanted if name not in episodes]:
        raise MissingRows(f"run {run_id} has no episode {missing[0]} any more")
    return StoredRows(episodes=[episodes[name] for name in wanted], branches=branches)


def iteration_payloads(
    connection: Connection, run_id: int, job_id: int
) -> Iterator[IterationPayload]:
    """Every stored iteration of a job, oldest first: the lines of its log."""
    iterations = connection.execute(
        select(Iteration.iteration, Iteration.written_at)
        .where(Iteration.run_id == run_id, Iteration.job_id == job_id)
        .order_by(Iteration.iteration)
    ).all()
    for row in iterations:
        yield _iteration(connection, run_id, job_id, row.iteration, row.written_at)


def _iteration(
    connection: Connection, run_id: int, job_id: int, iteration: int, written_at: object
) -> IterationPayload:
    def mine(model: type[Base], order: str) -> list[Row]:
        table = _table(model)
        found = connection.execute(
            select(table)
            .where(
                table.c.run_id == run_id,
                table.c.job_id == job_id,
                table.c.iteration == iteration,
            )
            .order_by(table.c[order])
        )
        return [dict(row) for row in found.mappings()]

    checkpoints = [
        CheckpointPayload.model_validate(_pick(CheckpointPayload, row, {}))
        for row in mine(Checkpoint, "iteration")
    ]
    return IterationPayload(
        iteration=iteration,
        written_at=cast(Any, written_at),
        metrics={row["key"]: row["value"] for row in mine(Metric, "key")},
        episodes=_episodes(connection, run_id, mine(Episode, "ordinal")),
        branches=_branches(connection, run_id, mine(Branch, "ordinal")),
        evaluations=_evaluations(connection, mine(Evaluation, "panel")),
        checkpoint=checkpoints[0] if checkpoints else None,
        rescores=[
            RescorePayload.model_validate(_pick(RescorePayload, row, {}))
            for row in mine(Rescore, "branch_id")
        ],
    )


def _episodes(connection: Connection, run_id: int, rows: Sequence[Row]) -> list[EpisodePayload]:
    ids = [row["episode_id"] for row in rows]
    steps = _children(connection, Step, run_id, "episode_id", ids, "index")
    texts = _texts(connection, Episode, rows) | _texts(
        connection, Step, [step for found in steps.values() for step in found]
    )
    return [
        EpisodePayload.model_validate(
            _pick(EpisodePayload, row, texts)
            | {
                "task": _pick(TaskPayload, row, texts),
                "steps": [_pick(StepPayload, step, texts) for step in steps[row["episode_id"]]],
            }
        )
        for row in rows
    ]


def _branches(connection: Connection, run_id: int, rows: Sequence[Row]) -> list[BranchPayload]:
    ids = [row["branch_id"] for row in rows]
    steps = _children(connection, BranchStep, run_id, "branch_id", ids, "depth")
    texts = _texts(connection, Branch, rows) | _texts(
        connection, BranchStep, [step for found in steps.values() for step in found]
    )
    return [
        BranchPayload.model_validate(
            _pick(BranchPayload, row, texts)
            | {
                "task": _pick(TaskPayload, row, texts),
                "steps": [
                    _pick(BranchStepPayload, step, texts) for step in steps[row["branch_id"]]
                ],
            }
        )
        for row in rows
    ]


def _evaluations(connection: Connection, rows: Sequence[Row]) -> list[EvaluationPayload]:
    found: list[EvaluationPayload] = []
    for row in rows:

        def children(model: type[Base], key: Row = row) -> list[Row]:
            names = ("run_id", "job_id", "evaluation_id")
            table = _table(model)
            same = [table.c[name] == key[name] for name in names]
            rows = connection.execute(select(table).where(*same).order_by(table.c.ordinal))
            return [dict(child) for child in rows.mappings()]

        found.append(
            EvaluationPayload.model_validate(
                _pick(EvaluationPayload, row, {})
                | {
                    "results": [_pick(EvalResultPayload, r, {}) for r in children(EvalResult)],
                    "outcomes": [_pick(OutcomePayload, r, {}) for r in children(EvalOutcome)],
                }
            )
        )
    return found


def _pick(model: type[BaseModel], row: Row, texts: Mapping[int, str]) -> dict[str, Any]:
    """The payload's fields that the row has, texts in the place of their ids."""
    found: dict[str, Any] = {}
    for name in model.model_fields:
        if name in row:
            found[name] = row[name]
        elif isinstance(key := row.get(f"{name}_id", ""), int | None):
            stored = None if key is None else texts[key]
            is_list = name in LISTS and stored is not None
            found[name] = parse_list(stored) if is_list and stored is not None else stored
    return found


def _rows(connection: Connection, model: type[Base], *conditions: ColumnElement[bool]) -> list[Row]:
    return [
        dict(row) for row in connection.execute(select(_table(model)).where(*conditions)).mappings()
    ]


def _children(
    connection: Connection,
    model: type[Base],
    run_id: int,
    key: str,
    ids: Sequence[str],
    order: str,
) -> dict[str, list[Row]]:
    table = _table(model)
    rows = connection.execute(
        select(table)
        .where(table.c.run_id == run_id, table.c[key].in_(ids))
        .order_by(table.c[key], table.c[order])
    ).mappings()
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(dict(row))
    return found


def _texts(connection: Connection, model: type[Base], rows: Sequence[Row]) -> dict[int, str]:
    names = [
        column.name
        for column in _table(model).columns
        if column.name.endswith("_id") and column.type.python_type is int
    ]
    own = [name for name in names if name not in ("run_id", "job_id")]
    ids = {row[name] for row in rows for name in own if row[name] is not None}
    return load_texts(connection, ids)


def _table(model: type[Base]) -> Table:
    return cast(Table, model.__table__)
