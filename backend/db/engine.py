"""The engine: one per process, with time-outs so that a lost server never hangs a request."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine


def make_engine(
    url: str, *, pool_size: int = 10, statement_timeout_s: float = 30.0, name: str = "sero"
) -> Engine:
    """Connections speak UTC. `name` shows up in pg_stat_activity."""
    options = (
        f"-c timezone=UTC -c statement_timeout={int(statement_timeout_s * 1000)} "
        "-c idle_in_transaction_session_timeout=60000"
    )
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=10,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "application_name": name, "options": options},
    )
