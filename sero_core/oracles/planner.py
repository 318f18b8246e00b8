"""The planner: the shortest way to the goal, with full knowledge of the hidden state.

Privileged: it reads every fact of the environment. It never fails where the goal can be reached,
and says why where it cannot.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from sero_core.envs.alfworld.plan import plan
from sero_core.envs.alfworld.plan_state import Goal, Layout, State
from sero_core.oracles.goal import goal_from_file
from sero_core.types import Environment, Observation, Oracle, OracleError, Prefix


class PlannerOracle(BaseModel):
    """Shortest plan over all facts, hidden ones too. 100 % where the goal can be reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    envs: ClassVar[tuple[str, ...]] = ("alfworld",)

    name: Literal["planner"] = "planner"

    def __call__(self) -> Oracle:
        return Planner()


class Planner:
    """Plans anew at every step, so an action of someone else in between does no harm."""

    def __init__(self) -> None:
        self._env: Environment | None = None
        self._goal = Goal("", "", "")
        self._layout: Layout | None = None

    def start(self, prefix: Prefix) -> None:
        self._env = prefix.env
        self._goal = goal_from_file(prefix.task.path, prefix.task.content_hash)
        self._layout = Layout.from_facts(prefix.env.facts())

    def act(self, observation: Observation) -> str:
        if self._env is None:
            raise OracleError("the planner was not started")
        actions = plan(State.from_facts(self._env.facts(), self._layout), self._goal)
        if not actions:
            raise OracleError("the goal is already reached")
        if actions[0] not in observation.admissible:
            raise OracleError(f"the plan begins with {actions[0]!r}, which is not admissible here")
        return actions[0]
