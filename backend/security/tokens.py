"""API tokens: made once, shown once, kept as a hash.

A token is `sero_<public id>_<secret>`; the secret has 256 random bits, so one SHA-256 of it is
enough (nothing to guess, nothing to slow down) and a stolen table opens no door.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, cast, get_args

from sqlalchemy import Connection, func, insert, select, update

from backend.db.models import ApiToken

Scope = Literal["read", "submit", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Each includes those before it."""
FORM: Final = re.compile(r"^sero_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})$")
USE_STEP: Final = timedelta(minutes=1)
"""`last_used_at` is written at most this often, so that reading stays reading."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request comes from. `token_id` is None where no token is asked for (loopback)."""

    token_id: str | None
    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


LOCAL: Final = Identity(None, "local", "admin")
"""A request over the loopback interface of a server that asks for no token."""


def issue(
    connection: Connection,
    name: str,
    scope: Scope,
    days: int | None,
    *,
    max_queued: int | None = None,
    max_running: int | None = None,
) -> tuple[str, str]:
    """Make a token that is valid for `days` (None: until revoked). Returns (id, the token).

    `max_queued`, `max_running`: jobs that it may have at a time; None: any number.

    The token cannot be read again. Errors: ValueError for an empty name or `days` below 1.
    """
    if not name.strip():
        raise ValueError("a token needs a name, so that it can be told apart and revoked")
    if days is not None and days < 1:
        raise ValueError(f"a token valid for {days} days; allowed: 1 or more, or no expiry")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    expires = None if days is None else func.now() + timedelta(days=days)
    connection.execute(
        insert(ApiToken).values(
            id=token_id,
            name=name.strip(),
            scope=scope,
            secret_hash=_hash(secret),
            max_queued=max_queued,
            max_running=max_running,
            expires_at=expires,
        )
    )
    return token_id, f"sero_{token_id}_{secret}"


def verify(connection: Connection, token: str) -> Identity | None:
    """Who the token belongs to; None if it is malformed, unknown, revoked or expired.

    The hash is compared also for an unknown id, in constant time.
    """
    found = FORM.match(token)
    if found is None:
        return None
    row = connection.execute(
        select(
            ApiToken.id,
            ApiToken.name,
            ApiToken.scope,
            ApiToken.secret_hash,
            (
                ApiToken.revoked_at.is_(None)
                & (ApiToken.expires_at.is_(None) | (ApiToken.expires_at > func.now()))
            ).label("is_valid"),
        ).where(ApiToken.id == found["id"])
    ).one_or_none()
    expected = row.secret_hash if row is not None else _hash("")
    is_equal = hmac.compare_digest(expected, _hash(found["secret"]))
    if row is None or not is_equal or not row.is_valid:
        return None
    return Identity(row.id, row.name, cast(Scope, row.scope))


def note_use(connection: Connection, token_id: str) -> None:
    """Remember that a token was used, at most once a minute."""
    connection.execute(
        update(ApiToken)
        .where(
            ApiToken.id == token_id,
            ApiToken.last_used_at.is_(None) | (ApiToken.last_used_at < func.now() - USE_STEP),
        )
        .values(last_used_at=func.now())
    )


def revoke(connection: Connection, token_id: str) -> bool:
    """Whether there was such a token that was not revoked before."""
    result = connection.execute(
        update(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )
    return result.rowcount == 1


def count_valid(connection: Connection) -> int:
    """Tokens that open the API now."""
    return connection.execute(
        select(func.count())
        .select_from(ApiToken)
        .where(
            ApiToken.revoked_at.is_(None),
            ApiToken.expires_at.is_(None) | (ApiToken.expires_at > func.now()),
        )
    ).scalar_one()


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What may be shown of a token."""

    id: str
    name: str
    scope: Scope
    max_queued: int | None
    max_running: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def list_tokens(connection: Connection) -> list[TokenInfo]:
    """Newest first, revoked and expired ones too."""
    rows = connection.execute(
        select(
            ApiToken.id,
            ApiToken.name,
            ApiToken.scope,
            ApiToken.max_queued,
            ApiToken.max_running,
            ApiToken.created_at,
            ApiToken.expires_at,
            ApiToken.revoked_at,
            ApiToken.last_used_at,
        ).order_by(ApiToken.created_at.desc(), ApiToken.id)
    )
    return [TokenInfo(*row) for row in rows]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
