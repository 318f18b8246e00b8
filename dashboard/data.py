"""Cached reads from the API. One store per dashboard process, shared by all sessions.

Every answer says when it was true (`as_of`). When the API does not answer, the last answer is
shown with the error beside it; without one the error is raised. Answers are frozen models, so
sessions can share them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar, cast

import streamlit as st

from backend import schemas as s
from backend.client import ApiError, SeroClient
from backend.settings import Settings
from dashboard.state import BranchesState
from dashboard.view import format

T = TypeVar("T")

LIVE_S = 1.5
"""Age at which something that changes is asked again (live fragments run every 2 s)."""
STEADY_S = 60.0
"""Age at which something that is written once is asked again (a re-shipped branch is the same)."""
RETRY_S = 2.0
"""After a failed request the stale answers are shown this long without asking."""
MAX_ENTRIES = 400
TOKEN = "api_token"
"""Where a session keeps its token."""


@dataclass(frozen=True, slots=True)
class Fetched(Generic[T]):
    """An answer, when it was given, and the error of a later attempt that failed."""

    value: T
    as_of: datetime
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    value: object
    as_of: datetime
    at: float


class Store:
    """Newest answers by key, at most `max_entries`; the least recently used goes first."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._down_until = 0.0
        self._down: ApiError | None = None

    def fetch(self, key: Hashable, ttl_s: float, call: Callable[[], T]) -> Fetched[T]:
        """The cached answer when younger than `ttl_s` seconds, else a new one.

        Errors: `ApiError` where the API says no (4xx), or does not answer and nothing is cached.
        """
        now = time.monotonic()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            down = self._down if now < self._down_until else None
        if entry is not None and now - entry.at < ttl_s:
            return Fetched(cast(T, entry.value), entry.as_of)
        if entry is not None and down is not None:
            return Fetched(cast(T, entry.value), entry.as_of, down)
        try:
            value = call()
        except ApiError as error:
            if 400 <= error.status < 500:
                raise
            with self._lock:
                self._down, self._down_until = error, time.monotonic() + RETRY_S
            if entry is None:
                raise
            return Fetched(cast(T, entry.value), entry.as_of, error)
        fresh = _Entry(value, datetime.now(UTC), time.monotonic())
        with self._lock:
            self._entries[key] = fresh
            self._down_until = 0.0
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        return Fetched(value, fresh.as_of)

    def forget(self) -> None:
        """Ask everything again (after a change that this dashboard made)."""
        with self._lock:
            self._entries.clear()


def client() -> SeroClient:
    """The client with this session's token; the address is `SERO_API_URL`."""
    return _client_of(st.session_state.get(TOKEN, ""))


@st.cache_resource(show_spinner=False, max_entries=100)
def _client_of(token: str) -> SeroClient:
    return SeroClient(Settings.from_env().api_url, token=token)


@st.cache_resource(show_spinner=False)
def store() -> Store:
    return Store()


def _get(key: Hashable, ttl_s: float, call: Callable[[], T]) -> Fetched[T]:
    return store().fetch(key, ttl_s, call)


def runs(limit: int, status: s.RunStatus | None, search: str | None) -> Fetched[s.RunPage]:
    key = ("runs", limit, status, search)
    return _get(key, LIVE_S, lambda: client().runs(status=status, search=search, limit=limit))


def run(run_id: int) -> Fetched[s.RunDetail]:
    return _get(("run", run_id), LIVE_S, lambda: client().run(run_id))


def metrics(run_id: int, max_points: int = 400) -> Fetched[s.MetricsResponse]:
    """All curves of a run."""
    key = ("metrics", run_id, max_points)
    return _get(key, LIVE_S, lambda: client().metrics(run_id, max_points=max_points))


def compared_metrics(
    run_id: int, keys: tuple[str, ...], max_points: int
) -> Fetched[s.MetricsResponse]:
    key = ("metrics", run_id, keys, max_points)
    return _get(key, 10.0, lambda: client().metrics(run_id, keys, max_points=max_points))


def evaluations(run_id: int) -> Fetched[s.EvaluationsResponse]:
    return _get(("evaluations", run_id), LIVE_S, lambda: client().evaluations(run_id))


def depth_map(run_id: int) -> Fetched[s.DepthMapResponse]:
    return _get(("depth", run_id), 5.0, lambda: client().depth_map(run_id))


def checkpoints(run_id: int) -> Fetched[s.CheckpointsResponse]:
    return _get(("checkpoints", run_id), LIVE_S, lambda: client().checkpoints(run_id))


def log(run_id: int, limit: int) -> Fetched[s.LogResponse]:
    return _get(("log", run_id, limit), LIVE_S, lambda: client().log(run_id, limit=limit))


def events(run_id: int) -> Fetched[s.EventsResponse]:
    return _get(("events", run_id), LIVE_S, lambda: client().events(run_id))


def branches(filters: BranchesState, limit: int, cursor: str | None) -> Fetched[s.BranchPage]:
    """One page of branches, newest iteration first. An unknown outcome is the API's 422."""
    won = {"any": None, "won": True, "lost": False}[filters.policy]
    key = ("branches", filters, limit, cursor)
    return _get(
        key,
        LIVE_S,
        lambda: client().branches(
            run_id=filters.run,
            task_type=None if filters.task is None else format.task_type_id(filters.task),
            outcome=cast("s.Outcome | None", filters.outcome),
            is_episode_won=won,
            min_depth=filters.min_depth,
            min_iteration=filters.from_iteration,
            max_iteration=filters.to_iteration,
            limit=limit,
            cursor=cursor,
        ),
    )


def branch(permalink: str) -> Fetched[s.BranchDetail]:
    return _get(("branch", permalink), STEADY_S, lambda: client().branch(permalink))


def episodes(
    run_id: int, iteration: int | None, is_won: bool | None, limit: int, cursor: str | None
) -> Fetched[s.EpisodePage]:
    key = ("episodes", run_id, iteration, is_won, limit, cursor)
    return _get(
        key,
        LIVE_S,
        lambda: client().episodes(
            run_id, iteration=iteration, is_won=is_won, limit=limit, cursor=cursor
        ),
    )


def episode(permalink: str) -> Fetched[s.EpisodeDetail]:
    return _get(("episode", permalink), STEADY_S, lambda: client().episode(permalink))


def compare(run_ids: tuple[int, ...]) -> Fetched[s.CompareResponse]:
    return _get(("compare", run_ids), 5.0, lambda: client().compare(run_ids))


def jobs(state: s.JobState | None) -> Fetched[s.JobPage]:
    return _get(("jobs", state), LIVE_S, lambda: client().jobs(state=state))


def workers() -> Fetched[s.WorkersResponse]:
    return _get(("workers",), LIVE_S, lambda: client().workers())


def health() -> Fetched[s.HealthResponse]:
    return _get(("health",), LIVE_S, lambda: client().health())


def config_schema() -> Fetched[s.ConfigSchemaResponse]:
    return _get(("schema",), STEADY_S, lambda: client().config_schema())
