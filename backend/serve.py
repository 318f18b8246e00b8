"""`sero api`: the API server, closed by default.

Bound to the loopback interface it needs no token (`SERO_REQUIRE_TOKEN=1` asks for one all the
same). Any other address starts only if a valid token exists, and then every request needs one.
"""

from __future__ import annotations

import os

import uvicorn
from sqlalchemy.exc import OperationalError, ProgrammingError

from backend.db.engine import make_engine
from backend.security.gate import is_loopback
from backend.security.tokens import count_valid
from backend.settings import Settings


class UnsafeAddress(Exception):
    """The API may not listen at this address; the message says why and what to do."""


def serve(settings: Settings, host: str, port: int, grace_s: int = 3) -> None:
    """Run uvicorn until it is stopped. Errors: `UnsafeAddress`."""
    check_address(settings, host)
    if not is_loopback_name(host):
        os.environ["SERO_REQUIRE_TOKEN"] = "1"
    uvicorn.run(
        "backend.main:create_app",
        factory=True,
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_s,
    )


def is_loopback_name(host: str) -> bool:
    """Whether a bind address is of the loopback interface; a name other than localhost is not."""
    return (
        host == "localhost"
        or (host.replace(".", "").isdigit() and is_loopback(host))
        or (":" in host and is_loopback(host))
    )


def check_address(settings: Settings, host: str) -> None:
    """Errors: `UnsafeAddress` for an address other than loopback while no token is valid."""
    if is_loopback_name(host):
        return
    engine = make_engine(settings.database_url, pool_size=1, name="sero-api-start")
    try:
        with engine.connect() as connection:
            num_valid = count_valid(connection)
    except (OperationalError, ProgrammingError) as error:
        raise UnsafeAddress(
            f"cannot bind to {host}: the tokens cannot be read ({error.orig}); outside of "
            "127.0.0.1 the API starts only with a token"
        ) from None
    finally:
        engine.dispose()
    if num_valid == 0:
        raise UnsafeAddress(
            f"cannot bind to {host}: there is no valid token, and outside of 127.0.0.1 the API "
            "starts only with one; make it with `sero token create NAME --scope admin`"
        )
