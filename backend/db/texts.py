"""Each distinct text once: observations, prompts and lists of admissible actions repeat a lot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from sqlalchemy import Connection, select, text

from backend.db.copy import copy_rows, raw_connection
from backend.db.records import StoredText


class TextCollision(RuntimeError):
    """Two different texts have the same 64-bit id (once in about 2^32 texts)."""


def clean(value: str) -> str:
    """PostgreSQL cannot store U+0000; it becomes the visible symbol U+2400."""
    return value.replace("\0", "\u2400")


def text_id(value: str) -> int:
    """Signed 64-bit BLAKE2b of a cleaned text."""
    digest = hashlib.blake2b(value.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class TextCollector:
    """Gives out the ids of texts and remembers the texts for `store`."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._list_ids: dict[tuple[str, ...], int] = {}
        self._texts: dict[int, str] = {}

    def add(self, value: str) -> int:
        """The id of a text. Errors: `TextCollision`."""
        known = self._ids.get(value)
        if known is not None:
            return known
        cleaned = clean(value)
        made = text_id(cleaned)
        if self._texts.setdefault(made, cleaned) != cleaned:
            raise TextCollision(f"two texts share the id {made}")
        self._ids[value] = made
        return made

    def add_list(self, values: list[str]) -> int:
        """The id of a list, stored as one JSON array."""
        key = tuple(values)
        if key not in self._list_ids:
            self._list_ids[key] = self.add(json.dumps(values, ensure_ascii=False))
        return self._list_ids[key]

    def store(self, connection: Connection) -> None:
        """Insert the texts that are not there yet. Errors: `TextCollision`.

        In the order of ids, so that two transactions with common texts wait instead of deadlock.
        """
        connection.execute(
            text(
                "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_texts "
                "(id bigint, text text) ON COMMIT DELETE ROWS"
            )
        )
        copy_rows(
            raw_connection(connection),
            "incoming_texts",
            {"id": "int8", "text": "text"},
            self._texts.items(),
        )
        connection.execute(
            text(
                "INSERT INTO texts (id, text) SELECT id, text FROM incoming_texts ORDER BY id "
                "ON CONFLICT DO NOTHING"
            )
        )
        collision = connection.execute(
            text(
                "SELECT id FROM incoming_texts JOIN texts USING (id) "
                "WHERE incoming_texts.text <> texts.text LIMIT 1"
            )
        ).scalar_one_or_none()
        if collision is not None:
            raise TextCollision(f"a new text and a stored one share the id {collision}")


def load_texts(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    """The texts of some ids."""
    wanted = sorted(set(ids))
    rows = connection.execute(
        select(StoredText.id, StoredText.text).where(StoredText.id.in_(wanted))
    )
    return {row.id: row.text for row in rows}


def parse_list(stored: str) -> list[str]:
    """The list that `TextCollector.add_list` stored."""
    return [str(item) for item in json.loads(stored)]
