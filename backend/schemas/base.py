"""What the HTTP API takes and returns; shared by the API and the Python client.

Times are UTC. A number that may be `null` is `null` where the stored value is not finite (NaN,
infinity): JSON has no word for it, and it must not look like zero. A value that was never written
has no entry at all.
"""

from __future__ import annotations

import math
from typing import Annotated, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

RunStatus = Literal["queued", "running", "stopping", "succeeded", "failed", "cancelled", "skipped"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled", "skipped"]
JobKind = Literal["train", "branch", "branch_from_here", "rescore", "evaluate", "export"]
JOB_ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})
Outcome = Literal["won", "horizon", "dead_end", "budget", "oracle_error", "restore_mismatch"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Config = dict[str, JsonValue]
ItemT = TypeVar("ItemT")


def _finite_or_null(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite_or_null)]
"""A float; `null` = not finite."""


class Schema(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class Page(Schema, Generic[ItemT]):
    """One page of a list. Ask again with `cursor=next_cursor`; `null` = this was the last page."""

    items: list[ItemT]
    next_cursor: str | None
    num_matching: int = Field(description="Entries that pass the filters, over all pages")
    num_total: int = Field(description="Entries without the filters")


class FieldError(Schema):
    """One wrong input field. `field` is dotted, as in the config: `sero.root.per_group`."""

    field: str
    message: str
    allowed: str | None = None


class ConfigChange(Schema):
    """One config key that is not the same on two sides. A value of null on a side that has no such
    key (`added`, `removed`) means absent."""

    key: str
    change: Literal["added", "removed", "changed"]
    type: str = Field(description="JSON type of the value: number, text, list, table, …")
    before: JsonValue
    after: JsonValue


class ErrorInfo(Schema):
    code: str
    message: str
    request_id: str
    fields: list[FieldError] = []


class ErrorResponse(Schema):
    """The one shape of every error."""

    error: ErrorInfo
