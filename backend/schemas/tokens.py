"""Tokens of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from backend.schemas.base import Schema

TokenScope = Literal["read", "submit", "admin"]


class IdentityInfo(Schema):
    """Who a request comes from. `token_id` is null where no token is asked for."""

    name: str
    scope: TokenScope
    token_id: str | None


class TokenRequest(Schema):
    name: str = Field(min_length=1, max_length=80, description="To tell it apart and revoke it")
    scope: TokenScope = Field(default="read", description="read; submit: also writes; admin: all")
    days: int | None = Field(default=90, ge=1, le=3650, description="Validity; null = no end")
    max_queued: int | None = Field(
        default=None, ge=0, le=100_000, description="Jobs that may wait at a time; null = any"
    )
    max_running: int | None = Field(
        default=None, ge=0, le=10_000, description="Jobs that may run at a time; null = any"
    )


class NewToken(Schema):
    """The only answer that ever holds the token."""

    id: str
    token: str


class TokenInfo(Schema):
    id: str
    name: str
    scope: TokenScope
    max_queued: int | None = None
    max_running: int | None = None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokensResponse(Schema):
    tokens: list[TokenInfo]
