"""The gate before every route: origin, token, scope, size of the body.

A request needs a token when the server is set to ask for one, and always when it did not arrive
over the loopback interface: a server that somebody binds to another address by hand is closed, not
open. Paths outside of the API's prefix need one too; `health` needs none.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from fastapi.responses import JSONResponse
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from backend.schemas import ErrorInfo, ErrorResponse
from backend.security import tokens
from backend.security.limits import FailureLimit, limited
from backend.security.tokens import LOCAL, Identity, Scope

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN_PATHS: Final = frozenset({"/api/v1/health"})
ADMIN: Final = (
    ("DELETE", re.compile(r"^/api/v1/")),
    ("", re.compile(r"^/api/v1/(tokens|retention)(/|:|$)")),
    ("POST", re.compile(r"^/api/v1/workers/")),
    ("PUT", re.compile(r"^/api/v1/workers/")),
    ("PATCH", re.compile(r"^/api/v1/workers/")),
)
"""(method or any, path) that only an administrator may use: deleting, workers, tokens."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the gate asks for. `origins` are scheme://host[:port] of the pages that may write."""

    is_token_required: bool
    origins: frozenset[str]
    max_body_bytes: int
    max_import_bytes: int
    import_path: str = "/api/v1/runs:import"


def needed_scope(method: str, path: str) -> Scope:
    """The scope that a request needs: reads read, writes submit, and `ADMIN`'s list admin."""
    for admin_method, pattern in ADMIN:
        if admin_method in ("", method) and pattern.match(path):
            return "admin"
    return "read" if method in SAFE else "submit"


def is_loopback(host: str) -> bool:
    """Whether an address is of the loopback interface. A name is a transport inside the process
    or a Unix socket: servers know the addresses they accept on as numbers."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class Gate:
    """Pure ASGI middleware. Sets `scope["state"]["identity"]` to the `Identity` of the request."""

    def __init__(self, app: ASGIApp, engine: Engine, rules: Rules) -> None:
        self._app, self._engine, self._rules = app, engine, rules
        self._failures = FailureLimit()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._check_origin(scope["method"], headers)
        if refusal is None:
            try:
                who = await self._identify(scope, headers)
            except OperationalError:
                refusal = _Refusal(503, "database_unavailable", "the database does not answer")
            else:
                refusal = who if isinstance(who, _Refusal) else None
                if isinstance(who, Identity):
                    scope.setdefault("state", {})["identity"] = who
        if refusal is None:
            refusal = await self._pass(scope, headers, receive, send)
        if refusal is not None:
            await refusal.answer(scope)(scope, receive, send)

    async def _pass(
        self, scope: AsgiScope, headers: Headers, receive: Receive, send: Send
    ) -> _Refusal | None:
        """Let the request through, with its body counted."""
        is_import = scope["path"] == self._rules.import_path
        most = self._rules.max_import_bytes if is_import else self._rules.max_body_bytes
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            return _Refusal(413, "body_too_large", f"the body is longer than {most} bytes")
        await self._app(scope, limited(receive, most), send)
        return None

    def _check_origin(self, method: str, headers: Headers) -> _Refusal | None:
        """A page of another site may not write, not even through the browser of somebody who
        may (the loopback server asks for no token)."""
        if method in SAFE:
            return None
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
                return None
        elif origin in self._rules.origins:
            return None
        return _Refusal(403, "wrong_origin", f"pages of {origin} may not write to this API")

    async def _identify(self, scope: AsgiScope, headers: Headers) -> Identity | _Refusal:
        server = scope.get("server")
        is_local = server is None or is_loopback(str(server[0]))
        if is_local and not self._rules.is_token_required:
            return LOCAL
        if scope["path"] in OPEN_PATHS:
            return Identity(None, "anybody", "read")
        client = scope.get("client")
        address = str(client[0]) if client else "unknown"
        wait_s = self._failures.wait_s(address)
        if wait_s > 0:
            return _Refusal(
                429,
                "too_many_failures",
                "too many wrong tokens from this address",
                {"Retry-After": str(math.ceil(wait_s))},
            )
        kind, _, token = headers.get("authorization", "").partition(" ")
        found = await run_sync(self._verify, token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            if kind:
                self._failures.note(address)
            return _Refusal(
                401,
                "unauthorized",
                "this API needs a valid token: Authorization: Bearer sero_…",
                {"WWW-Authenticate": "Bearer"},
            )
        needed = needed_scope(scope["method"], scope["path"])
        if not found.may(needed):
            message = f"this needs a token of scope {needed}; {found.name!r} has {found.scope}"
            return _Refusal(403, "forbidden", message)
        return found

    def _verify(self, token: str) -> Identity | None:
        with self._engine.begin() as connection:
            found = tokens.verify(connection, token)
            if found is not None and found.token_id is not None:
                tokens.note_use(connection, found.token_id)
        return found


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    code: str
    message: str
    headers: dict[str, str] | None = None

    def answer(self, scope: AsgiScope) -> ASGIApp:
        request_id = str(scope.get("state", {}).get("request_id", ""))
        error = ErrorInfo(code=self.code, message=self.message, request_id=request_id, fields=[])
        body = json.loads(ErrorResponse(error=error).model_dump_json())
        return JSONResponse(body, status_code=self.status, headers=self.headers)


def origin_of(url: str) -> str:
    """scheme://host[:port] of a URL, as browsers write it in `Origin`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
