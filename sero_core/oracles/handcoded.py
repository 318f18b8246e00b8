"""ALFWorld's own hand-coded expert (alfworld 0.4.2), for comparison with the literature.

It sees every step of the prefix ("attached"), then decides step by step. Three faults are handled
here, none in the package itself:

- It waits for "put" although the action has been called "move" since 0.4.0 (alfworld pull request
  114): it is told "put", without which it never finishes a task with two objects.
- It draws from the global `random`: each oracle lends it a state of its own, seeded by the task.
- It crashes in states it did not expect, or gives up: that becomes an `OracleError`.

As upstream does, an action that is not admissible is replaced by "look".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Literal, Protocol, cast

from pydantic import BaseModel, ConfigDict

from sero_core.envs.alfworld.plan_state import LIGHT, Goal
from sero_core.oracles.goal import goal_from_file
from sero_core.types import Environment, Observation, Oracle, OracleError, Prefix, SeroError

MAX_EXPERT_STEPS = 10_000
"""The expert's own limit; whoever runs the oracle limits the steps."""


class HandcodedOracle(BaseModel):
    """ALFWorld's own expert, its put/move fault handled. Needs the package alfworld."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    envs: ClassVar[tuple[str, ...]] = ("alfworld",)

    name: Literal["handcoded"] = "handcoded"

    def __call__(self) -> Oracle:
        return Handcoded()


@dataclass(frozen=True, slots=True)
class NamedFact:
    """A fact in the shape that the expert reads."""

    name: str
    names: tuple[str, ...]


class ExpertPolicy(Protocol):
    """The part of alfworld's BasePolicy that is used here."""

    inventory: list[str]

    def observe(self, obs: str) -> None: ...

    def update_state_tracking(self, game_state: dict[str, object], last_action: str) -> None: ...


class ExpertAgent(Protocol):
    """The part of alfworld's HandCodedTWAgent that is used here."""

    policy: ExpertPolicy

    def get_task_policy(
        self, task_param: dict[str, str]
    ) -> Callable[[dict[str, str], int], ExpertPolicy]: ...

    def act(
        self, game_state: dict[str, object], reward: float, done: bool, last_action: str
    ) -> str: ...


class Handcoded:
    """Feeds the expert what it saw, asks it, and keeps its randomness to itself."""

    def __init__(self) -> None:
        self._agent: ExpertAgent | None = None
        self._env: Environment | None = None
        self._last_action = ""
        self._random_state: object = None

    def start(self, prefix: Prefix) -> None:
        goal = goal_from_file(prefix.task.path, prefix.task.content_hash)
        agent = _make_agent(goal)
        self._env, self._agent, self._last_action = prefix.env, agent, ""
        self._random_state = random.Random(prefix.task.task_id).getstate()
        after = [*(step.observation for step in prefix.steps), prefix.observation]
        agent.policy.observe(after[0].text)
        for step, observation in zip(prefix.steps, after[1:], strict=True):
            if step is not prefix.steps[-1]:  # `act` tells it the last one itself
                told = _as_told(agent.policy, step.action, observation.text)
                agent.policy.update_state_tracking({"feedback": observation.text}, told)
                agent.policy.observe(observation.text)
            self._last_action = step.action

    def act(self, observation: Observation) -> str:
        if self._agent is None or self._env is None:
            raise OracleError("the expert was not started")
        told = _as_told(self._agent.policy, self._last_action, observation.text)
        facts = [NamedFact(name, tuple(args)) for name, *args in sorted(self._env.facts())]
        state: dict[str, object] = {
            "feedback": observation.text,
            "admissible_commands": list(observation.admissible),
            "facts": facts,
        }
        outside = random.getstate()
        random.setstate(cast("tuple[int, tuple[int, ...], float | None]", self._random_state))
        try:
            action = self._agent.act(state, 0.0, False, told)
        except (NameError, IndexError, KeyError, ValueError) as error:
            # NameError is the base of the expert's own "timeout" and "failed"
            kind = type(error).__name__
            raise OracleError(f"ALFWorld's expert gave up: {kind} {error}".strip()) from error
        finally:
            self._random_state = random.getstate()
            random.setstate(outside)
        self._last_action = action if action in observation.admissible else "look"
        return self._last_action


def _as_told(policy: ExpertPolicy, action: str, feedback: str) -> str:
    """The action as the expert understands it: "move" is "put". It takes for granted that its
    inventory holds what is put, so an object whose "take" it never saw is entered first."""
    verb, _, rest = action.partition(" ")
    if verb != "move" or "Nothing happens" in feedback:
        return action
    if not policy.inventory:
        policy.inventory.append(" ".join(rest.split()[:2]))
    return f"put {rest}"


def _make_agent(goal: Goal) -> ExpertAgent:
    try:
        module = import_module("alfworld.agents.expert")
    except ModuleNotFoundError as error:
        raise SeroError(  # the setup's fault, not the state's: no branch could ever succeed
            f"oracle handcoded needs alfworld==0.4.2, extra `alfworld`: {error}"
        ) from error
    agent = cast("Callable[..., ExpertAgent]", module.HandCodedTWAgent)(max_steps=MAX_EXPERT_STEPS)
    is_light = goal.task_type == LIGHT
    params = {
        "task_type": goal.task_type,
        "object_target": goal.target,
        "parent_target": "" if is_light else goal.parent,
        "toggle_target": goal.parent if is_light else "",
        "mrecep_target": "",
    }
    agent.policy = agent.get_task_policy(params)(params, MAX_EXPERT_STEPS)
    return agent
