"""Deleting runs and checkpoints: what it frees."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from backend.schemas.base import Schema


class DeletionReport(Schema):
    """What was freed, or (dry run) would be. Row bytes are those of the rows themselves; the
    database reuses their place after its next vacuum, which starts by itself."""

    run_ids: list[int]
    is_dry_run: bool = False
    num_rows: dict[str, int] = Field(default={}, description="Deleted rows by table")
    num_texts: int = Field(default=0, description="Texts that nothing else refers to")
    row_bytes: int = 0
    num_checkpoints: int = 0
    file_bytes: int = 0


class RetentionRequest(Schema):
    """Which ended runs to clean up: those that ended more than `older_than_days` ago.

    `what` = `checkpoints` deletes their weights only and keeps every row; `runs` deletes all.
    `keep_newest`: checkpoints of each run that stay (for `checkpoints`).
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"what": "checkpoints", "older_than_days": 30, "is_dry_run": True}]
        },
    )

    what: Literal["checkpoints", "runs"]
    older_than_days: float = Field(ge=0, le=36_500)
    statuses: list[Literal["succeeded", "failed", "cancelled", "skipped"]] = Field(
        default=["succeeded", "failed", "cancelled", "skipped"]
    )
    keep_newest: int = Field(default=1, ge=0, le=1000)
    is_dry_run: bool = True
