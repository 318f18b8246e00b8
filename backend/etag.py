"""`ETag` and `304 Not Modified` for every JSON answer to a GET.

The tag is a hash of the answer itself, so it can never say "unchanged" wrongly; what a 304 saves is
the transfer and the reader's parsing. Streams and files pass through untouched.
"""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BYTES = 32_000_000
NOT_MODIFIED = 304


class ETags:
    """Pure ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        await self._app(scope, receive, _Tagger(known, send))


class _Tagger:
    """Holds a JSON answer back until it is whole; lets everything else through."""

    def __init__(self, known: str, send: Send) -> None:
        self._known = {tag.strip() for tag in known.split(",")}
        self._send = send
        self._start: Message | None = None
        self._body: list[bytes] = []
        self._num_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json(message):
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body.append(message.get("body", b""))
        self._num_bytes += len(self._body[-1])
        if message.get("more_body", False):
            if self._num_bytes > MAX_BYTES:
                await self._give_up()
            return
        await self._finish(b"".join(self._body))

    async def _give_up(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            await self._send(start)
        body = b"".join(self._body)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _finish(self, body: bytes) -> None:
        start, self._start = self._start, None
        if start is None:
            return
        tag = f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        headers = MutableHeaders(scope=start)
        headers["ETag"] = tag
        headers.setdefault("Cache-Control", "private, no-cache")
        if tag in self._known:
            del headers["content-length"], headers["content-type"]
            await self._send({**start, "status": NOT_MODIFIED})
            body = b""
        else:
            await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _is_json(message: Message) -> bool:
    kind = Headers(raw=message["headers"]).get("content-type", "")
    return message["status"] == 200 and kind.startswith("application/json")
