"""Who asks, and how much of the queue a token may use."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text


class QuotaExceeded(Exception):
    """The token has as many queued jobs as it may have."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The token of a request; None without one (the local user, who has no limits)."""

    token_id: str | None = None
    name: str | None = None


def check_queued(connection: Connection, caller: Caller, num_new: int) -> None:
    """Errors: `QuotaExceeded` when `num_new` more jobs would wait than the token may have.

    Locks the token's row until the transaction ends: requests in parallel count one by one.
    """
    if caller.token_id is None:
        return
    limit = connection.execute(
        text("SELECT max_queued FROM api_tokens WHERE id = :id FOR UPDATE"), {"id": caller.token_id}
    ).scalar_one()
    if limit is None:
        return
    waiting = connection.execute(
        text("SELECT count(*) FROM jobs WHERE token_id = :id AND state = 'queued'"),
        {"id": caller.token_id},
    ).scalar_one()
    if waiting + num_new > limit:
        raise QuotaExceeded(
            f"token {caller.name!r} may have {limit} jobs in the queue: {waiting} wait there, "
            f"{num_new} more were asked for"
        )
