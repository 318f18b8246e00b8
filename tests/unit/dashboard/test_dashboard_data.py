"""The store: fresh answers are reused, stale ones outlive a dead API, refusals are passed on."""

from __future__ import annotations

import pytest

from backend.client import ApiError
from dashboard.data import Store

DOWN = ApiError(0, "unreachable", "refused")


class Source:
    """A source that counts, and fails when told to."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.error: ApiError | None = None

    def __call__(self) -> int:
        self.num_calls += 1
        if self.error is not None:
            raise self.error
        return self.num_calls


def test_a_fresh_answer_is_reused() -> None:
    store, source = Store(), Source()
    assert [store.fetch("k", 60, source).value for _ in range(3)] == [1, 1, 1]


def test_an_old_answer_is_asked_again() -> None:
    store, source = Store(), Source()
    assert [store.fetch("k", 0, source).value for _ in range(2)] == [1, 2]


def test_the_last_answer_is_shown_with_the_error_when_the_api_is_down() -> None:
    store, source = Store(), Source()
    first = store.fetch("k", 0, source)
    source.error = DOWN
    again = store.fetch("k", 0, source)
    assert (again.value, again.as_of, again.error) == (1, first.as_of, DOWN)


def test_a_dead_api_is_not_asked_for_every_part_of_the_page() -> None:
    store, source = Store(), Source()
    store.fetch("a", 0, source)
    store.fetch("b", 0, source)
    source.error = DOWN
    store.fetch("a", 0, source)
    assert store.fetch("b", 0, source).error is DOWN
    assert source.num_calls == 3


def test_without_an_answer_the_error_is_raised() -> None:
    source = Source()
    source.error = DOWN
    with pytest.raises(ApiError):
        Store().fetch("k", 60, source)


def test_a_refusal_is_never_hidden_behind_an_old_answer() -> None:
    store, source = Store(), Source()
    store.fetch("k", 0, source)
    source.error = ApiError(404, "not_found", "gone")
    with pytest.raises(ApiError):
        store.fetch("k", 0, source)


def test_the_store_is_bounded() -> None:
    store, source = Store(max_entries=2), Source()
    for key in ("a", "b", "a", "c"):
        store.fetch(key, 60, source)
    assert store.fetch("a", 60, source).value == 1
    assert store.fetch("b", 60, source).value == 4


def test_forget_asks_again() -> None:
    store, source = Store(), Source()
    store.fetch("k", 60, source)
    store.forget()
    assert store.fetch("k", 60, source).value == 2
