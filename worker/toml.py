"""Write a config as TOML: the standard library only reads it. `null` is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue


def to_toml(data: Mapping[str, JsonValue]) -> str:
    """A TOML document with one line per value; nested mappings become sections."""
    return "\n".join(_lines(data, "")) + "\n"


def _lines(data: Mapping[str, JsonValue], prefix: str) -> list[str]:
    lines = [
        f"{_key(key)} = {_value(value)}"
        for key, value in data.items()
        if value is not None and not isinstance(value, dict)
    ]
    for key, value in data.items():
        if isinstance(value, dict):
            name = f"{prefix}{_key(key)}"
            lines += ["", f"[{name}]", *_lines(value, f"{name}.")]
    return lines


def _value(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    if isinstance(value, dict):
        items = (f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(items) + " }"
    return _string(str(value))


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _string(key)


def _string(text: str) -> str:
    """JSON's escapes are TOML's, except that TOML also wants DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
