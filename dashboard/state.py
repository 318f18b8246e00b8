"""URL <-> typed state. Every page is its URL: `parse` and `query` are each other's inverse.

Unknown parameters and values that cannot be read fall back to the default: old links still open.
Defaults are left out of the URL. Widgets on a page are bound to the same names by Streamlit
(`bind="query-params"`); links are made here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Tab = Literal["Curves", "Evaluations", "Branches", "Episodes", "Checkpoints", "Log", "Config"]
XAxis = Literal["iteration", "env_steps", "tokens", "hours"]
Won = Literal["any", "won", "lost"]

RUN_TABS: tuple[Tab, ...] = get_args(Tab)
X_AXES: tuple[XAxis, ...] = get_args(XAxis)
_PERMALINK = re.compile(r"[0-9]{1,9}-[A-Za-z0-9_.:-]{1,100}")
_MAX_ID = 2**31 - 1


class State(Protocol):
    """What a page shows. `query()` is the URL's query without `?`."""

    def query(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class RunState:
    """`/run`: which run and which tab."""

    id: int | None = None
    tab: Tab = "Curves"

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> RunState:
        tab = params.get("tab")
        return cls(
            id=_number(params.get("id")),
            tab=next((name for name in RUN_TABS if name == tab), "Curves"),
        )

    def query(self) -> dict[str, str]:
        return _drop({"id": self.id, "tab": None if self.tab == "Curves" else self.tab})


@dataclass(frozen=True, slots=True)
class StepState:
    """`/branch` and `/episode`: a permalink and the step. Branch: 0 = root, below 0 = before it."""

    id: str | None = None
    step: int = 0

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> StepState:
        given = params.get("id", "")
        return cls(
            id=given if _PERMALINK.fullmatch(given) else None,
            step=_number(params.get("step"), lowest=-_MAX_ID) or 0,
        )

    def query(self) -> dict[str, str]:
        return _drop({"id": self.id, "step": self.step or None})


@dataclass(frozen=True, slots=True)
class BranchesState:
    """`/branches`: the filters. None and `any` = no filter."""

    run: int | None = None
    task: str | None = None
    outcome: str | None = None
    policy: Won = "any"
    min_depth: int | None = None
    from_iteration: int | None = None
    to_iteration: int | None = None

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> BranchesState:
        policy = params.get("policy")
        return cls(
            run=_number(params.get("run")),
            task=params.get("task") or None,
            outcome=params.get("outcome") or None,
            policy="won" if policy == "won" else "lost" if policy == "lost" else "any",
            min_depth=_number(params.get("min_depth")),
            from_iteration=_number(params.get("from_iteration")),
            to_iteration=_number(params.get("to_iteration")),
        )

    def query(self) -> dict[str, str]:
        return _drop(
            {
                "run": self.run,
                "task": self.task,
                "outcome": self.outcome,
                "policy": None if self.policy == "any" else self.policy,
                "min_depth": self.min_depth,
                "from_iteration": self.from_iteration,
                "to_iteration": self.to_iteration,
            }
        )


@dataclass(frozen=True, slots=True)
class CompareState:
    """`/compare`: which runs, in which order, over which x axis."""

    runs: tuple[int, ...] = ()
    x: XAxis = "iteration"

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> CompareState:
        numbers = [_number(part) for part in params.get("runs", "").split(",")]
        x = params.get("x")
        return cls(
            runs=tuple(dict.fromkeys(number for number in numbers if number is not None)),
            x=next((name for name in X_AXES if name == x), "iteration"),
        )

    def query(self) -> dict[str, str]:
        return _drop(
            {
                "runs": ",".join(str(run) for run in self.runs) or None,
                "x": None if self.x == "iteration" else self.x,
            }
        )


def run_of(permalink: str) -> int:
    """The run id of a branch or episode permalink `<run_id>-<id>`."""
    return int(permalink.partition("-")[0])


def _drop(values: Mapping[str, str | int | None]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def _number(text: str | None, lowest: int = 0) -> int | None:
    """A whole number within 32 bits, or None."""
    if text is None or not re.fullmatch(r"-?[0-9]{1,10}", text.strip()):
        return None
    value = int(text)
    return value if lowest <= value <= _MAX_ID else None
