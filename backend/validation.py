"""Turns pydantic errors into the API's: which field, what is wrong, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_core import ErrorDetails

from backend.schemas import FieldError

Node = Mapping[str, Any]
_OWN_FIELD = re.compile(r"^(?P<field>[a-z_]+(\.[a-z_0-9]+)+): (?P<message>.*)$", re.DOTALL)


def field_errors(
    errors: Iterable[ErrorDetails], data: object, schema: Node | None = None, prefix: str = ""
) -> list[FieldError]:
    """One entry per wrong field of `data`; `allowed` comes from the JSON Schema `schema`."""
    found = list(errors)
    places = [error["loc"] for error in found]
    return [
        _field_error(error, data, schema, prefix)
        for error in found
        # pydantic calls a list too short when it dropped its wrong entries
        if error["type"] != "too_short"
        or not any(place[:-1] == error["loc"] for place in places if place)
    ]


def _field_error(error: ErrorDetails, data: object, schema: Node | None, prefix: str) -> FieldError:
    path = _without_tags(error["loc"], data)
    message = error["msg"].removeprefix("Value error, ")
    allowed = None
    if schema is not None:
        parent = path[:-1] if error["type"] == "extra_forbidden" else path
        allowed = describe(schema, parent, data)
    own = _OWN_FIELD.match(message)
    if own is not None:  # a check over several fields names its field itself
        path, message = tuple(own["field"].split(".")), own["message"]
        message, _, said = message.partition("; allowed: ")
        allowed = said or allowed
    if (given := error.get("input")) is not None and not isinstance(given, dict | list):
        message += f" (got {given!r})"
    return FieldError(
        field=prefix + ".".join(str(part) for part in path), message=message, allowed=allowed
    )


def _without_tags(location: Sequence[str | int], data: object) -> tuple[str | int, ...]:
    """The path as the user wrote it: pydantic also lists the chosen members of unions."""
    path: list[str | int] = []
    current = data
    for position, part in enumerate(location):
        if isinstance(current, Mapping):
            if part not in current and position < len(location) - 1:
                continue
            current = current.get(part)
        elif isinstance(current, list | tuple) and isinstance(part, int):
            current = current[part] if part < len(current) else None
        path.append(part)
    return tuple(path)


def describe(schema: Node, path: Sequence[str | int], data: object) -> str | None:
    """What JSON Schema `schema` allows at `path`, in words; None where it says nothing."""
    node: Node | None = schema
    current = data
    for part in path:
        if node is None:
            return None
        node = _child(schema, node, part, current)
        if isinstance(current, Mapping):
            current = current.get(str(part))
        elif isinstance(current, list | tuple) and isinstance(part, int) and part < len(current):
            current = current[part]
        else:
            current = None
    return None if node is None else _in_words(schema, node, current)


def _child(schema: Node, node: Node, part: str | int, data: object) -> Node | None:
    for option in _options(schema, node, data):
        if isinstance(part, int):
            if "items" in option:
                return option["items"]
        elif part in option.get("properties", {}):
            return option["properties"][part]
    return None


def _options(schema: Node, node: Node, data: object) -> list[Node]:
    """The alternatives of a node with references resolved; a discriminator picks one."""
    if "$ref" in node:
        target = schema
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return _options(schema, target, data)
    if "discriminator" in node and isinstance(data, Mapping):
        tag = data.get(node["discriminator"]["propertyName"])
        chosen = node["discriminator"]["mapping"].get(tag)
        if chosen is not None:
            return _options(schema, {"$ref": chosen}, data)
    alternatives = node.get("anyOf") or node.get("oneOf")
    if alternatives is None:
        return [node]
    return [found for option in alternatives for found in _options(schema, option, data)]


def _in_words(schema: Node, node: Node, data: object) -> str | None:
    found = [_option_in_words(schema, option) for option in _options(schema, node, data)]
    parts = [part for part in found if part is not None]
    return " or ".join(dict.fromkeys(parts)) or None


def _option_in_words(schema: Node, option: Node) -> str | None:
    if "const" in option:
        return repr(option["const"])
    if "enum" in option:
        return ", ".join(repr(value) for value in option["enum"])
    match option.get("type"):
        case "object" if "properties" in option:
            return "the keys " + ", ".join(option["properties"])
        case "array":
            items = _in_words(schema, option.get("items", {}), None)
            least = option.get("minItems", 0)
            return f"a list of {items}" + (f", at least {least}" if least else "")
        case "integer" | "number" as kind:
            return _range(("an integer" if kind == "integer" else "a number"), option)
        case "string":
            pattern = f" that matches {option['pattern']}" if "pattern" in option else ""
            longest = (
                f" of at most {option['maxLength']} characters" if "maxLength" in option else ""
            )
            return f"a text{longest}{pattern}"
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case _:
            return None


def _range(noun: str, option: Node) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {option[key]}" for key, sign in signs.items() if key in option]
    return noun + (" " + " and ".join(bounds) if bounds else "")


def merge(base: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """`base` with `changes`: nested tables are merged, `a.b` is the key b of table a."""
    merged = dict(base)
    for key, value in changes.items():
        first, _, rest = key.partition(".")
        change: JsonValue = {rest: value} if rest else value
        current = merged.get(first)
        if isinstance(change, dict):
            merged[first] = merge(current if isinstance(current, dict) else {}, change)
        else:
            merged[first] = change
    return merged
