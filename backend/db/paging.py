"""Keyset pagination: a cursor is the sort key of a page's last row, so new rows shift nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, UnaryExpression, and_, or_

CursorValue = int | float | str


class SortKey(NamedTuple):
    """A column of the order; together the columns of an order are unique."""

    column: ColumnElement[int] | ColumnElement[float] | ColumnElement[str]
    kind: type[int] | type[float] | type[str]
    is_ascending: bool


class InvalidCursor(ValueError):
    """The cursor is not one that this list gave out."""


def order_by(keys: Sequence[SortKey]) -> list[UnaryExpression[Any]]:
    return [key.column.asc() if key.is_ascending else key.column.desc() for key in keys]


def encode(values: Sequence[CursorValue]) -> str:
    """An opaque, URL-safe cursor."""
    data = json.dumps(list(values), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def after(keys: Sequence[SortKey], cursor: str) -> ColumnElement[bool]:
    """The rows behind a cursor. Errors: `InvalidCursor`."""
    values = _decode(keys, cursor)
    alternatives: list[ColumnElement[bool]] = []
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        same = [k.column == v for k, v in zip(keys[:index], values[:index], strict=True)]
        behind = key.column > value if key.is_ascending else key.column < value
        alternatives.append(and_(*same, behind))
    # says the same again for the first column alone: an index can begin there
    first = keys[0].column >= values[0] if keys[0].is_ascending else keys[0].column <= values[0]
    return and_(first, or_(*alternatives))


def _decode(keys: Sequence[SortKey], cursor: str) -> list[CursorValue]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values: object = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidCursor("this is not a cursor of this list") from error
    if not isinstance(values, list) or [type(value) for value in values] != [
        key.kind for key in keys
    ]:
        raise InvalidCursor("this is not a cursor of this list")
    return values
