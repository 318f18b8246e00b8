"""What a person types becomes a query that PostgreSQL accepts."""

from __future__ import annotations

import pytest

from backend.db.queries.branch_search import word_query


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("microwave", "(microwave:*)"),
        ("take cd", "(take:*) & (cd:*)"),
        ('"go to desk" mug', "(go <-> to <-> desk) & (mug:*)"),
        ("cd-3", "(cd:* & 3:*)"),
        ("'; drop table & | ! ( :*", "(drop:*) & (table:*)"),
        ("  !!  ", None),
        ("", None),
        ("käse", "(käse:*)"),
    ],
)
def test_words(typed: str, expected: str | None) -> None:
    assert word_query(typed) == expected
