"""Oracle branches: the list, one branch with every step, and weight by depth over training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, text

from backend.db import paging
from backend.db.models import Run
from backend.db.queries.episodes import get_episode, permalink, task_of
from backend.db.queries.metrics import bucket_size, iteration_range
from backend.db.queries.runs import training_job_id
from backend.db.records import Branch, BranchStep
from backend.db.texts import load_texts, parse_list
from backend.schemas import (
    BranchDetail,
    BranchPage,
    BranchStepInfo,
    BranchSummary,
    DepthBucket,
    DepthCell,
    DepthMapResponse,
    Outcome,
)

_TABLE = Branch.__table__.c
_COLUMNS = (*_TABLE, Run.name.label("run_name"))
_ORDER = (
    paging.SortKey(_TABLE.run_id, int, is_ascending=False),
    paging.SortKey(_TABLE.iteration, int, is_ascending=False),
    paging.SortKey(_TABLE.ordinal, int, is_ascending=True),
    paging.SortKey(_TABLE.branch_id, str, is_ascending=True),
)


@dataclass(frozen=True, slots=True)
class BranchFilter:
    """None = any. `min_depth`: at least that many branch steps."""

    run_id: int | None = None
    iteration: int | None = None
    min_iteration: int | None = None
    max_iteration: int | None = None
    task_type: str | None = None
    split: str | None = None
    outcome: Outcome | None = None
    is_episode_won: bool | None = None
    min_depth: int | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        equal: dict[str, object] = {
            "run_id": self.run_id,
            "iteration": self.iteration,
            "task_type": self.task_type,
            "split": self.split,
            "outcome": self.outcome,
            "is_episode_won": self.is_episode_won,
        }
        found = [_TABLE[name] == value for name, value in equal.items() if value is not None]
        if self.min_iteration is not None:
            found.append(Branch.iteration >= self.min_iteration)
        if self.max_iteration is not None:
            found.append(Branch.iteration <= self.max_iteration)
        if self.min_depth is not None:
            found.append(Branch.num_steps >= self.min_depth)
        return found


def list_branches(
    connection: Connection, wanted: BranchFilter, *, limit: int, cursor: str | None
) -> BranchPage:
    """Newest run and iteration first. `num_total` counts the run's branches (or all).

    Errors: `paging.InvalidCursor`.
    """
    conditions = wanted.conditions()
    rows = [
        dict(row)
        for row in connection.execute(
            select(*_COLUMNS)
            .join(Run, Run.id == Branch.run_id)
            .where(*conditions, *([paging.after(_ORDER, cursor)] if cursor else []))
            .order_by(*paging.order_by(_ORDER))
            .limit(limit + 1)
        ).mappings()
    ]
    count = select(func.count()).select_from(Branch)
    everything = BranchFilter(run_id=wanted.run_id).conditions()
    next_cursor = None
    if len(rows) > limit:
        next_cursor = paging.encode([rows[limit - 1][key.column.name] for key in _ORDER])
    return BranchPage(
        items=[BranchSummary.model_validate(_summary(row)) for row in rows[:limit]],
        next_cursor=next_cursor,
        num_matching=connection.execute(count.where(*conditions)).scalar_one(),
        num_total=connection.execute(count.where(*everything)).scalar_one(),
    )


def get_branch(connection: Connection, run_id: int, branch_id: str) -> BranchDetail | None:
    """One branch with every step, and the episode around its root."""
    row = (
        connection.execute(
            select(*_COLUMNS)
            .join(Run, Run.id == Branch.run_id)
            .where(Branch.run_id == run_id, Branch.branch_id == branch_id)
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        return None
    steps = [
        dict(step)
        for step in connection.execute(
            select(*BranchStep.__table__.columns)
            .where(BranchStep.run_id == run_id, BranchStep.branch_id == branch_id)
            .order_by(BranchStep.depth)
        ).mappings()
    ]
    final_id: int | None = row["final_observation_id"]
    keys = ("observation_id", "admissible_id", "prompt_id")
    ids = [step[key] for step in steps for key in keys]
    texts = load_texts(connection, ids if final_id is None else [*ids, final_id])
    return BranchDetail.model_validate(
        {
            **_summary(dict(row)),
            "is_restored_exactly": row["root_hash"] == row["restored_hash"],
            "final_observation": None if final_id is None else texts[final_id],
            "steps": [_step(step, texts) for step in steps],
            "episode": get_episode(connection, run_id, row["episode_id"]),
        }
    )


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "id": permalink(row["run_id"], row["branch_id"]), "task": task_of(row)}


def _step(row: Mapping[str, Any], texts: Mapping[int, str]) -> BranchStepInfo:
    return BranchStepInfo.model_validate(
        {
            **row,
            "observation": texts[row["observation_id"]],
            "admissible": parse_list(texts[row["admissible_id"]]),
            "prompt": texts[row["prompt_id"]],
        }
    )


_CELLS = text(
    """
    SELECT iteration / :size * :size AS iteration, depth, count(*) AS num_steps,
        avg(weight) FILTER (WHERE weight > '-Infinity' AND weight < 'Infinity') AS mean_weight
    FROM branch_steps WHERE run_id = :run_id AND job_id = :job_id
    GROUP BY iteration / :size, depth ORDER BY iteration / :size, depth
    """
)
_MARGINAL = text(
    """
    SELECT iteration / :size * :size AS iteration, count(*) AS num_branches,
        avg(effective_depth) FILTER (
            WHERE effective_depth > '-Infinity' AND effective_depth < 'Infinity'
        ) AS effective_depth
    FROM branches WHERE run_id = :run_id AND job_id = :job_id
    GROUP BY iteration / :size ORDER BY iteration / :size
    """
)


def depth_map(connection: Connection, run_id: int, max_buckets: int) -> DepthMapResponse:
    """Mean weight by (bucket of iterations, depth) over the branches of the run's training."""
    job_id = training_job_id(connection, run_id)
    first, last = iteration_range(connection, run_id, job_id)
    size = 1 if first is None or last is None else bucket_size(first, last, max_buckets)
    values = {"run_id": run_id, "job_id": job_id, "size": size}
    return DepthMapResponse(
        run_id=run_id,
        bucket_iterations=size,
        cells=[DepthCell.model_validate(row) for row in connection.execute(_CELLS, values)],
        buckets=[DepthBucket.model_validate(row) for row in connection.execute(_MARGINAL, values)],
    )
