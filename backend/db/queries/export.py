"""Tables of a run as Parquet, CSV or JSON lines, row by row: nothing is held in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, cast

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Connection,
    DateTime,
    Double,
    Integer,
    Label,
    Table,
    Text,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from backend.db import records as rec
from backend.db.models import Base, Event, LogLine

Format = Literal["parquet", "csv", "jsonl"]
Write = Callable[[bytes], object]
BATCH_ROWS = 2000
MODELS: Final[dict[str, type[Base]]] = {
    "iterations": rec.Iteration,
    "metrics": rec.Metric,
    "episodes": rec.Episode,
    "steps": rec.Step,
    "branches": rec.Branch,
    "branch_steps": rec.BranchStep,
    "rescores": rec.Rescore,
    "evaluations": rec.Evaluation,
    "eval_results": rec.EvalResult,
    "eval_outcomes": rec.EvalOutcome,
    "checkpoints": rec.Checkpoint,
    "events": Event,
    "log_lines": LogLine,
}
TABLES: Final = tuple(MODELS)
_LEFT_OUT = frozenset({"payload_hash", "transaction_id"})


def write_table(connection: Connection, run_id: int, table: str, kind: Format, write: Write) -> int:
    """Write all rows of a run; returns how many."""
    count = 0
    for chunk, num_rows in _chunks(connection, run_id, table, kind):
        write(chunk)
        count += num_rows
    return count


def stream_table(connection: Connection, run_id: int, table: str, kind: Format) -> Iterator[bytes]:
    """The same in pieces, for an answer that is sent while it is read."""
    for chunk, _ in _chunks(connection, run_id, table, kind):
        if chunk:
            yield chunk


def _chunks(
    connection: Connection, run_id: int, table: str, kind: Format
) -> Iterator[tuple[bytes, int]]:
    columns = _columns(MODELS[table])
    rows = _batches(connection, run_id, MODELS[table], columns)
    if kind == "jsonl":
        for batch in rows:
            lines = (json.dumps(_json_row(row), ensure_ascii=False) for row in batch)
            yield "".join(f"{line}\n" for line in lines).encode(), len(batch)
        return
    schema = pa.schema(
        [(column.name, _arrow_type(column.type, is_flat=kind == "csv")) for column in columns]
    )
    sink = _Sink()
    file = pa.PythonFile(sink, mode="w")
    writer = (
        pq.ParquetWriter(file, schema, compression="zstd")
        if kind == "parquet"
        else pa_csv.CSVWriter(file, schema)
    )
    with writer:
        for batch in rows:
            plain = [_plain_row(row, is_flat=kind == "csv") for row in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(plain, schema=schema))
            yield sink.take(), len(batch)
    yield sink.take(), 0


class _Sink:
    """A file that can only be appended to and emptied."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def _columns(model: type[Base]) -> list[Label[Any]]:
    """The columns under the names of the export: a text in the place of its id."""
    table = cast(Table, model.__table__)
    found: list[Label[Any]] = []
    for column in table.columns:
        if column.name in _LEFT_OUT:
            continue
        is_text = isinstance(column.type, BigInteger) and column.name.endswith("_id")
        if is_text:
            stored = select(rec.StoredText.text).where(rec.StoredText.id == column)
            found.append(stored.scalar_subquery().label(column.name.removesuffix("_id")))
        else:
            found.append(column.label(column.name))
    return found


def _batches(
    connection: Connection, run_id: int, model: type[Base], columns: Sequence[Label[Any]]
) -> Iterator[list[Mapping[str, Any]]]:
    table = cast(Table, model.__table__)
    rows = connection.execution_options(stream_results=True, yield_per=BATCH_ROWS).execute(
        select(*columns).where(table.c.run_id == run_id).order_by(*table.primary_key.columns)
    )
    for batch in rows.mappings().partitions(BATCH_ROWS):
        yield [dict(row) for row in batch]


def _arrow_type(kind: TypeEngine[Any], *, is_flat: bool) -> pa.DataType:
    match kind:
        case ARRAY():
            return pa.string() if is_flat else pa.list_(_arrow_type(kind.item_type, is_flat=False))
        case BigInteger():
            return pa.int64()
        case Integer():
            return pa.int32()
        case Double():
            return pa.float64()
        case Boolean():
            return pa.bool_()
        case DateTime():
            return pa.timestamp("us", tz="UTC")
        case JSONB() | Text():
            return pa.string()
        case _:
            raise TypeError(f"no Arrow type for {kind!r}")


def _plain_row(row: Mapping[str, Any], *, is_flat: bool) -> dict[str, Any]:
    """Objects as JSON, and for CSV, which has none, lists, too."""
    nested = (list, dict) if is_flat else (dict,)
    return {
        key: json.dumps(value, ensure_ascii=False) if isinstance(value, nested) else value
        for key, value in row.items()
    }


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that are not finite as null, times as ISO 8601."""
    return {key: _json_value(value) for key, value in row.items()}


def _json_value(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_json_value(item) for item in cast("Iterable[object]", value)]
    return value.isoformat() if isinstance(value, datetime) else value
