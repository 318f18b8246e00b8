"""Importing a run that was trained elsewhere."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from backend.schemas.base import Config, Schema


class ImportHeader(Schema):
    """The first line of an import; the lines of `records.jsonl` follow as they are."""

    model_config = ConfigDict(extra="forbid")

    config: Config
    name: str | None = Field(default=None, description="Replaces the config's name")
    git_commit: str | None = Field(default=None, max_length=100)
    git_is_dirty: bool | None = None
    source: str = Field(default="", max_length=500, description="Where it comes from, in words")


class ImportReport(Schema):
    """`is_new`: the run was not here before. `num_new`: iterations that were not here before."""

    run_id: int
    is_new: bool
    num_iterations: int
    num_new: int
