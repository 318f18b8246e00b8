"""One shape for every error, a request id for every request, one log line for each."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.db.paging import InvalidCursor
from backend.db.queries.control import NotPossible
from backend.db.queries.quotas import QuotaExceeded
from backend.db.queries.submit import IdempotencyConflict
from backend.schemas import ErrorInfo, ErrorResponse, FieldError
from backend.security.limits import BodyTooLarge
from backend.validation import field_errors

log = logging.getLogger("sero.api")
REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


class ApiProblem(Exception):
    """An answer other than success. Subclasses say which."""

    status = HTTPStatus.BAD_REQUEST
    code = "bad_request"

    def __init__(self, message: str, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.fields = list(fields)


class NotFound(ApiProblem):
    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class Conflict(ApiProblem):
    status = HTTPStatus.CONFLICT
    code = "conflict"


class TooMany(ApiProblem):
    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "quota_exceeded"


class InvalidRequest(ApiProblem):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid_request"


def install(app: FastAPI, allowed_hosts: Sequence[str]) -> None:
    """Register the handlers and the outermost middleware."""
    app.add_middleware(RequestContext, allowed_hosts=allowed_hosts)
    app.add_exception_handler(ApiProblem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(InvalidCursor, _cursor)
    for kind in _SAID_BY_QUERIES:
        app.add_exception_handler(kind, _said_by_query)
    app.add_exception_handler(OperationalError, _database)
    app.add_exception_handler(PoolTimeout, _database)


class RequestContext:
    """Checks the Host header, gives each request an id and logs how it ended.

    Also the place where an unexpected exception becomes a 500 in the common shape.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed_hosts = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.match(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            if not self._is_allowed(headers.get("host", "")):
                refused = _answer(400, "unknown_host", "this Host is not served", request_id)
                await refused(scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s failed", request_id)
            if status != 0:  # the answer has begun; the server closes the connection
                raise
            message = "something went wrong on the server; its log has the request id"
            broken = _answer(500, "internal_error", message, request_id)
            await broken(scope, receive, send_with_id)
        finally:
            line = {
                "request_id": request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "duration_ms": round((time.perf_counter() - started) * 1000, 1),
            }
            log.info(json.dumps(line))

    def _is_allowed(self, host: str) -> bool:
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        return "*" in self._allowed_hosts or name in self._allowed_hosts


def _answer(
    status: int, code: str, message: str, request_id: str, fields: Sequence[FieldError] = ()
) -> JSONResponse:
    error = ErrorInfo(code=code, message=message, request_id=request_id, fields=list(fields))
    return JSONResponse(ErrorResponse(error=error).model_dump(mode="json"), status_code=status)


def _id(request: Request) -> str:
    return str(request.state.request_id)


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiProblem)
    return _answer(error.status, error.code, error.message, _id(request), error.fields)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields: list[FieldError] = []
    for item in error.errors():
        where, *rest = item["loc"] or ("request",)
        own = {**item, "loc": tuple(rest) or (where,)}
        fields += field_errors([own], error.body)  # pyright: ignore[reportArgumentType]
    return _answer(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "invalid_request",
        f"the request has {len(fields)} wrong field(s)",
        _id(request),
        fields,
    )


async def _cursor(request: Request, error: Exception) -> JSONResponse:
    allowed = "the `next_cursor` of the page before"
    problem = FieldError(field="cursor", message=str(error), allowed=allowed)
    return await _problem(request, InvalidRequest(problem.message, [problem]))


_SAID_BY_QUERIES: dict[type[Exception], type[ApiProblem]] = {
    IdempotencyConflict: Conflict,
    NotPossible: Conflict,
    QuotaExceeded: TooMany,
}


async def _said_by_query(request: Request, error: Exception) -> JSONResponse:
    return await _problem(request, _SAID_BY_QUERIES[type(error)](str(error)))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    message = f"{request.method} {request.url.path}: {error.detail}"
    code = "body_too_large" if isinstance(error, BodyTooLarge) else status.name.lower()
    answer = _answer(status, code, message, _id(request))
    answer.headers.update(error.headers or {})
    return answer


async def _database(request: Request, error: Exception) -> JSONResponse:
    log.error("database error in request %s: %s", _id(request), error)
    message = "the database does not answer; try again in a moment"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return _answer(status, "database_unavailable", message, _id(request))
