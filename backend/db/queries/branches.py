"""One oracle branch with every step, and how other checkpoints weigh it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from backend.db.models import Run
from backend.db.queries.branch_search import COLUMNS, summary
from backend.db.queries.episodes import get_episode
from backend.db.records import Branch, BranchStep, Rescore
from backend.db.texts import load_texts, parse_list
from backend.schemas import BranchDetail, BranchStepInfo, RescoreInfo


def get_branch(connection: Connection, run_id: int, branch_id: str) -> BranchDetail | None:
    """One branch with every step, and the episode around its root."""
    row = (
        connection.execute(
            select(*COLUMNS)
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
            **summary(dict(row)),
            "is_restored_exactly": row["root_hash"] == row["restored_hash"],
            "final_observation": None if final_id is None else texts[final_id],
            "steps": [_step(step, texts) for step in steps],
            "episode": get_episode(connection, run_id, row["episode_id"]),
        }
    )


def _step(row: Mapping[str, Any], texts: Mapping[int, str]) -> BranchStepInfo:
    return BranchStepInfo.model_validate(
        {
            **row,
            "observation": texts[row["observation_id"]],
            "admissible": parse_list(texts[row["admissible_id"]]),
            "prompt": texts[row["prompt_id"]],
        }
    )


def list_rescores(connection: Connection, run_id: int, branch_id: str) -> list[RescoreInfo]:
    """The branch under other checkpoints, by iteration; the newest job of each."""
    rows = connection.execute(
        select(*Rescore.__table__.columns)
        .where(Rescore.run_id == run_id, Rescore.branch_id == branch_id)
        .order_by(Rescore.iteration, Rescore.job_id)
    )
    return list({row.iteration: RescoreInfo.model_validate(row) for row in rows}.values())
