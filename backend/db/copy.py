"""Bulk rows by binary COPY, five times as fast as INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Boolean, Connection, Double, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

from backend.db.models import Base

RawConnection = psycopg.Connection[tuple[object, ...]]


def raw_connection(connection: Connection) -> RawConnection:
    """The psycopg connection below; it shares the transaction."""
    return cast(RawConnection, connection.connection.driver_connection)


def copy_into(
    connection: Connection,
    model: type[Base],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Append rows, each with its values in the order of `columns`, to a model's table."""
    table = cast(Table, model.__table__)
    types = {name: _type_name(table.columns[name].type) for name in columns}
    copy_rows(raw_connection(connection), table.name, types, rows)


def copy_rows(
    raw: RawConnection,
    table: str,
    columns: Mapping[str, str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Append rows to a table; `columns` maps names to PostgreSQL types."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with raw.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)


def _type_name(kind: TypeEngine[Any]) -> str:
    match kind:
        case ARRAY():
            return _type_name(kind.item_type) + "[]"
        case BigInteger():
            return "int8"
        case Integer():
            return "int4"
        case Double():
            return "float8"
        case Boolean():
            return "bool"
        case Text():
            return "text"
        case _:
            raise TypeError(f"no COPY type for {kind!r}")
