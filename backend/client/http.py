"""How the client speaks HTTP: errors, retries, and answers that did not change."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from backend import schemas as s

ModelT = TypeVar("ModelT", bound=BaseModel)
Params = Mapping[str, str | int | float | bool | Sequence[str] | None]

PREFIX = "/api/v1"
TIMEOUT = httpx.Timeout(10.0, connect=2.0)
LONG_TIMEOUT_S = 600.0
RETRY_WAITS_S = (0.1, 0.5)
RETRY_STATUSES = frozenset({502, 503, 504})
NOT_MODIFIED = 304
MAX_KNOWN = 128
"""Answers that are kept to be asked about again."""


class ApiError(Exception):
    """The API said no, or could not be reached (`status` = 0, code `unreachable`)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        request_id: str = "",
        fields: Sequence[s.FieldError] = (),
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.fields = tuple(fields)
        details = "".join(
            f"\n  {field.field}: {field.message}"
            + (f" (allowed: {field.allowed})" if field.allowed else "")
            for field in self.fields
        )
        super().__init__(f"{message} [{status} {code}, request {request_id or '-'}]{details}")


class Http:
    """All methods raise `ApiError`. `transport` lets tests speak to the app without a socket.

    `token` is the API token; None takes `$SERO_TOKEN`, empty sends none.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        transport: httpx.BaseTransport | None = None,
        token: str | None = None,
    ) -> None:
        token = os.environ.get("SERO_TOKEN", "") if token is None else token
        self._http = httpx.Client(
            base_url=base_url.rstrip("/") + PREFIX,
            timeout=TIMEOUT,
            transport=transport,
            headers={"Authorization": f"Bearer {token}"} if token else None,
        )
        self._known: OrderedDict[str, tuple[str, BaseModel]] = OrderedDict()
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _get(self, path: str, model: type[ModelT], params: Params | None = None) -> ModelT:
        given = {key: value for key, value in (params or {}).items() if value is not None}
        request = self._http.build_request("GET", path, params=given)
        key = str(request.url)
        with self._lock:
            known = self._known.get(key)
        if known is not None and isinstance(known[1], model):
            request.headers["If-None-Match"] = known[0]
            response = self._get_again(request)
            if response.status_code == NOT_MODIFIED:
                return known[1]
        else:
            response = self._get_again(request)
        answer = self._parse(response, model)
        if tag := response.headers.get("etag"):
            with self._lock:
                self._known[key] = (tag, answer)
                self._known.move_to_end(key)
                while len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
        return answer

    def _get_again(self, request: httpx.Request) -> httpx.Response:
        """Try a GET up to three times."""
        for wait_s in RETRY_WAITS_S:
            try:
                response = self._http.send(request)
            except httpx.TransportError:
                time.sleep(wait_s)
                continue
            if response.status_code not in RETRY_STATUSES:
                return response
            time.sleep(wait_s)
        return self._exchange(request)

    def _post(
        self,
        path: str,
        model: type[ModelT],
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ModelT:
        content = None if body is None else body.model_dump(mode="json")
        return self._send(
            self._http.build_request("POST", path, json=content, headers=headers), model
        )

    def _delete(self, path: str, model: type[ModelT]) -> ModelT:
        return self._send(self._http.build_request("DELETE", path, timeout=LONG_TIMEOUT_S), model)

    def _upload(self, path: str, model: type[ModelT], body: Iterable[bytes]) -> ModelT:
        request = self._http.build_request(
            "POST",
            path,
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
            timeout=LONG_TIMEOUT_S,
        )
        return self._send(request, model)

    def _download(self, path: str, params: Params, target: Path) -> int:
        """Errors: OSError, too. Nothing half-written stays under the target's name."""
        part = target.with_name(f".{target.name}.part")
        try:
            with self._http.stream(
                "GET", path, params=dict(params), timeout=LONG_TIMEOUT_S
            ) as response:
                if not response.is_success:
                    response.read()
                    self._parse(response, s.ErrorResponse)
                with part.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
        except httpx.TransportError as error:
            part.unlink(missing_ok=True)
            raise ApiError(0, "unreachable", f"GET {path} failed: {error!r}") from error
        part.replace(target)
        return target.stat().st_size

    def _send(self, request: httpx.Request, model: type[ModelT]) -> ModelT:
        return self._parse(self._exchange(request), model)

    def _exchange(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._http.send(request)
        except httpx.TransportError as error:
            raise ApiError(
                0, "unreachable", f"{request.method} {request.url} failed: {error!r}"
            ) from error

    @staticmethod
    def _parse(response: httpx.Response, model: type[ModelT]) -> ModelT:
        if response.is_success:
            return model.model_validate_json(response.content)
        try:
            error = s.ErrorResponse.model_validate_json(response.content).error
        except ValidationError:
            text = response.text[:200]
            raise ApiError(response.status_code, "not_from_the_api", text) from None
        raise ApiError(
            response.status_code, error.code, error.message, error.request_id, error.fields
        )
