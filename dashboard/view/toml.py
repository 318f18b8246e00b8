"""A config as TOML text: scalars, lists of scalars, nested tables. `None` is left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import cast


def dumps(data: Mapping[str, object]) -> str:
    """TOML that `tomllib` reads back as the same data. Errors: TypeError naming the type."""
    return "\n".join(_table(data, ())).strip() + "\n"


def _table(data: Mapping[str, object], path: tuple[str, ...]) -> list[str]:
    scalars = {k: v for k, v in data.items() if v is not None and not isinstance(v, Mapping)}
    tables = {k: cast("Mapping[str, object]", v) for k, v in data.items() if isinstance(v, Mapping)}
    lines: list[str] = []
    if path and (scalars or not tables):
        lines.append(f"[{'.'.join(_key(part) for part in path)}]")
    lines += [f"{_key(name)} = {_value(value)}" for name, value in scalars.items()]
    if lines:
        lines.append("")
    for name, table in tables.items():
        lines += _table(table, (*path, name))
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in cast("list[object]", value)) + "]"
    raise TypeError(f"TOML value: got {type(value).__name__}, expected a scalar or a list")


def _text(value: str) -> str:
    """A basic string: JSON's escapes, and DEL, which TOML does not allow bare."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
