"""What is different between two configs: typed, one line per dotted key."""

from __future__ import annotations

from pydantic import JsonValue

from backend.schemas import Config, ConfigChange

IGNORED = frozenset({"name"})


def flatten(config: Config, prefix: str = "") -> dict[str, JsonValue]:
    """Nested tables as dotted keys; an empty table stays a value."""
    flat: dict[str, JsonValue] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def changes(before: Config, after: Config) -> list[ConfigChange]:
    """From `before` to `after`, by key; the name does not count.

    A section that is absent (null) on one side appears as its keys on the other, without a line for
    the null itself.
    """
    old, new = flatten(before), flatten(after)
    found: list[ConfigChange] = []
    for key in sorted((old.keys() | new.keys()) - IGNORED):
        has_old, has_new = key in old, key in new
        if has_old and has_new and old[key] == new[key]:
            continue
        if not (has_old and has_new) and _is_absent_section(key, old if has_old else new, old, new):
            continue
        found.append(
            ConfigChange(
                key=key,
                change="changed" if has_old and has_new else "removed" if has_old else "added",
                type=type_name(new[key] if has_new else old[key]),
                before=old.get(key),
                after=new.get(key),
            )
        )
    return found


def _is_absent_section(
    key: str, side: dict[str, JsonValue], old: dict[str, JsonValue], new: dict[str, JsonValue]
) -> bool:
    """The key is a null that stands for a section which the other side has."""
    return side[key] is None and any(other.startswith(f"{key}.") for other in old.keys() | new)


def type_name(value: JsonValue) -> str:
    """JSON's type in a plain word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "text", list: "list", dict: "table"}[type(value)]
