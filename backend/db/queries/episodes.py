"""Episodes of the policy, with every step and the branches that start from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from backend.db import paging
from backend.db.records import Branch, Episode, Step
from backend.db.texts import load_texts, parse_list
from backend.schemas import (
    BranchRef,
    EpisodeDetail,
    EpisodePage,
    EpisodeSummary,
    StepInfo,
    TaskInfo,
)

_TABLE = Episode.__table__.c
_NUM_BRANCHES = (
    select(func.count())
    .where(Branch.run_id == Episode.run_id, Branch.episode_id == Episode.episode_id)
    .scalar_subquery()
)
_ORDER = (
    paging.SortKey(_TABLE.iteration, int, is_ascending=False),
    paging.SortKey(_TABLE.ordinal, int, is_ascending=True),
    paging.SortKey(_TABLE.episode_id, str, is_ascending=True),
)


def list_episodes(
    connection: Connection,
    run_id: int,
    *,
    iteration: int | None,
    task_type: str | None,
    is_won: bool | None,
    limit: int,
    cursor: str | None,
) -> EpisodePage:
    """Newest iteration first, in the order of its record. Errors: `paging.InvalidCursor`."""
    filters: list[ColumnElement[bool]] = [Episode.run_id == run_id]
    if iteration is not None:
        filters.append(Episode.iteration == iteration)
    if task_type is not None:
        filters.append(Episode.task_type == task_type)
    if is_won is not None:
        filters.append(Episode.is_won == is_won)
    rows = [
        dict(row)
        for row in connection.execute(
            select(*_TABLE, _NUM_BRANCHES.label("num_branches"))
            .where(*filters, *([paging.after(_ORDER, cursor)] if cursor else []))
            .order_by(*paging.order_by(_ORDER))
            .limit(limit + 1)
        ).mappings()
    ]
    count = select(func.count()).select_from(Episode)
    last = rows[limit - 1] if len(rows) > limit else None
    return EpisodePage(
        items=[EpisodeSummary.model_validate(_summary(row)) for row in rows[:limit]],
        next_cursor=None
        if last is None
        else paging.encode([last["iteration"], last["ordinal"], last["episode_id"]]),
        num_matching=connection.execute(count.where(*filters)).scalar_one(),
        num_total=connection.execute(count.where(Episode.run_id == run_id)).scalar_one(),
    )


def get_episode(connection: Connection, run_id: int, episode_id: str) -> EpisodeDetail | None:
    """One episode with every step."""
    row = (
        connection.execute(
            select(*_TABLE, _NUM_BRANCHES.label("num_branches")).where(
                Episode.run_id == run_id, Episode.episode_id == episode_id
            )
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        return None
    steps = connection.execute(
        select(*Step.__table__.columns)
        .where(Step.run_id == run_id, Step.episode_id == episode_id)
        .order_by(Step.index)
    ).mappings()
    found = [dict(step) for step in steps]
    keys = ("observation_id", "admissible_id", "response_id")
    texts = load_texts(
        connection, [row["final_observation_id"], *(step[key] for step in found for key in keys)]
    )
    return EpisodeDetail.model_validate(
        {
            **_summary(dict(row)),
            "final_observation": texts[row["final_observation_id"]],
            "steps": [_step(step, texts) for step in found],
            "branches": list_branch_refs(connection, run_id, episode_id),
        }
    )


def list_branch_refs(connection: Connection, run_id: int, episode_id: str) -> list[BranchRef]:
    """The branches of an episode, by root."""
    rows = connection.execute(
        select(
            Branch.branch_id,
            Branch.root_index,
            Branch.outcome,
            Branch.effective_depth,
            Branch.num_steps,
        )
        .where(Branch.run_id == run_id, Branch.episode_id == episode_id)
        .order_by(Branch.root_index, Branch.branch_id)
    ).mappings()
    return [
        BranchRef.model_validate({**row, "id": permalink(run_id, row["branch_id"])}) for row in rows
    ]


def permalink(run_id: int, own_id: str) -> str:
    """The id of an episode or branch among all runs."""
    return f"{run_id}-{own_id}"


def task_of(row: Mapping[str, Any]) -> TaskInfo:
    return TaskInfo.model_validate({name: row[name] for name in TaskInfo.model_fields})


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "id": permalink(row["run_id"], row["episode_id"]), "task": task_of(row)}


def _step(row: Mapping[str, Any], texts: Mapping[int, str]) -> StepInfo:
    return StepInfo.model_validate(
        {
            **row,
            "observation": texts[row["observation_id"]],
            "admissible": parse_list(texts[row["admissible_id"]]),
            "response": texts[row["response_id"]],
        }
    )
