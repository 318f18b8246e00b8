"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `note` says which, where something differs."""

    check: str
    expected: str
    found: str
    is_ok: bool
    note: str = ""


def some(items: list[str], limit: int = 3) -> str:
    """The first few, and how many more there are."""
    rest = len(items) - limit
    return "; ".join(items[:limit]) + (f"; and {rest} more" if rest > 0 else "")
