"""URL <-> state: what a page writes into a link is what the page behind the link shows."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.state import (
    RUN_TABS,
    X_AXES,
    BranchesState,
    CompareState,
    RunState,
    StepState,
    Tab,
    Won,
    XAxis,
    run_of,
)
from dashboard.view import format

IDS = st.integers(0, 2**31 - 1)
MAYBE = st.none() | IDS
PERMALINKS = st.from_regex(r"[0-9]{1,9}-[A-Za-z0-9_.-]{1,20}", fullmatch=True)
STEPS = st.integers(-(2**31) + 1, 2**31 - 1)
TASKS = st.sampled_from([format.task_type(name) for name in format.TASK_TYPE_ORDER])


def through_url(query: dict[str, str]) -> dict[str, str]:
    return dict(parse_qsl(urlencode(query), keep_blank_values=True))


@given(MAYBE, st.sampled_from(RUN_TABS))
def test_run_state_round_trip(run_id: int | None, tab: Tab) -> None:
    state = RunState(run_id, tab)
    assert RunState.parse(through_url(state.query())) == state


@given(st.none() | PERMALINKS, STEPS)
def test_step_state_round_trip(permalink: str | None, step: int) -> None:
    state = StepState(permalink, step)
    assert StepState.parse(through_url(state.query())) == state


@given(
    MAYBE,
    st.none() | TASKS,
    st.none() | st.sampled_from(["won", "dead_end", "budget"]),
    st.sampled_from(["any", "won", "lost"]),
    MAYBE,
    MAYBE,
    MAYBE,
)
def test_branches_state_round_trip(
    run: int | None,
    task: str | None,
    outcome: str | None,
    policy: Won,
    depth: int | None,
    first: int | None,
    last: int | None,
) -> None:
    state = BranchesState(run, task, outcome, policy, depth, first, last)
    assert BranchesState.parse(through_url(state.query())) == state


@given(st.lists(IDS, unique=True), st.sampled_from(X_AXES))
def test_compare_state_round_trip_keeps_the_order(runs: list[int], x: XAxis) -> None:
    state = CompareState(tuple(runs), x)
    assert CompareState.parse(through_url(state.query())) == state


@given(st.dictionaries(st.sampled_from(["id", "step", "tab", "runs", "x", "run"]), st.text()))
def test_any_query_parses_to_a_state_that_round_trips(params: dict[str, str]) -> None:
    for kind in (RunState, StepState, BranchesState, CompareState):
        state = kind.parse(params)
        assert kind.parse(state.query()) == state


def test_defaults_are_left_out_of_the_url() -> None:
    assert RunState(12).query() == {"id": "12"}
    assert StepState("12-i5g0e3t4").query() == {"id": "12-i5g0e3t4"}
    assert BranchesState().query() == {}


@pytest.mark.parametrize("text", ["12-<img>", "12", "-i5", "12-a b", ""])
def test_a_text_that_is_no_permalink_is_no_id(text: str) -> None:
    assert StepState.parse({"id": text}).id is None


def test_run_of_a_permalink() -> None:
    assert run_of("12-i5g0e3t4") == 12
