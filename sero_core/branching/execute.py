"""The oracle acts in the real environment from a restored state (SERO, arXiv 2610.19397)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sero_core.branching.roots import Root
from sero_core.envs.admissible import is_admissible
from sero_core.envs.vector import EnvPool
from sero_core.prompts import PastStep, Prompt, PromptBuilder, PromptTooLong, same_action, task_text
from sero_core.types import (
    BranchOutcome,
    DeadEnd,
    Environment,
    Episode,
    NotingOracle,
    Observation,
    Oracle,
    OracleError,
    Prefix,
    PrefixStep,
    RestoreMismatch,
)


@dataclass(frozen=True, slots=True)
class ExecutedStep:
    """One oracle step that was executed. `prompt` is what the policy would have seen here."""

    observation: Observation
    action: str
    prompt: Prompt
    reward: float
    state_hash: str


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened when the oracle acted from a root."""

    root: Root
    outcome: BranchOutcome
    reason: str
    restored_hash: str
    steps: tuple[ExecutedStep, ...]
    final_observation: Observation | None


@dataclass(frozen=True, slots=True)
class Executor:
    """Restores roots and lets the oracle act. `horizon` 0 = until the oracle wins; `max_steps` is
    the episode's own limit, which a branch keeps."""

    envs: EnvPool
    builder: PromptBuilder
    oracle: Oracle
    horizon: int
    max_oracle_steps: int
    max_steps: int
    success_reward: float

    def differs(self, episode: Episode, index: int) -> bool:
        """Whether the oracle, started at this step, would act otherwise than the policy did.

        A state that cannot be restored counts as different: its branch then says so. An oracle that
        gives up has no opinion.
        """
        step = episode.steps[index]
        env = self.envs.take(1)[0]
        env.reset(episode.task)
        try:
            observation = env.restore(step.snapshot)
            self.oracle.start(_prefix(episode, index, observation, env))
            return not same_action(self.oracle.act(observation), step.action)
        except RestoreMismatch:
            return True
        except OracleError:
            return False

    def execute(self, root: Root) -> Execution:
        """One branch. Every way to end is an outcome with a reason; none is an error."""
        env = self.envs.take(1)[0]
        env.reset(root.episode.task)
        try:
            observation = env.restore(root.episode.steps[root.index].snapshot)
        except RestoreMismatch as error:
            return Execution(root, "restore_mismatch", str(error), "", (), None)
        restored_hash = env.snapshot().state_hash
        steps: list[ExecutedStep] = []
        max_depth = self._max_depth(root)
        outcome, reason = self._limit(max_depth)
        try:
            self.oracle.start(_prefix(root.episode, root.index, observation, env))
            while len(steps) < max_depth:
                step, observation = self._step(root, steps, observation, env)
                steps.append(step)
                if observation.is_won:
                    outcome, reason = "won", f"won after {len(steps)} oracle step(s){self._note()}"
                    break
                if observation.is_terminated:
                    raise DeadEnd(f"the task ended after {len(steps)} oracle step(s), not won")
        except OracleError as error:
            outcome, reason = error.outcome, error.reason
        except PromptTooLong as error:
            outcome, reason = "budget", str(error)
        return Execution(root, outcome, reason, restored_hash, tuple(steps), observation)

    def _step(
        self, root: Root, before: Sequence[ExecutedStep], observation: Observation, env: Environment
    ) -> tuple[ExecutedStep, Observation]:
        """The oracle's next action, executed."""
        action = self.oracle.act(observation)
        if not is_admissible(root.episode.task.env, observation, action):
            raise OracleError(f"proposed {action!r}, which is not admissible")
        episode = root.episode
        past = [
            *(PastStep(s.observation.text, s.action) for s in episode.steps[: root.index]),
            *(PastStep(s.observation.text, s.action) for s in before),
        ]
        prompt = self.builder.build(task_text(episode.steps[0].observation.text), past, observation)
        state_hash = env.snapshot().state_hash
        after = env.step(action)
        reward = self.success_reward if after.is_won else 0.0
        return ExecutedStep(observation, action, prompt, reward, state_hash), after

    def _note(self) -> str:
        noting = isinstance(self.oracle, NotingOracle) and self.oracle.note
        return f"; {noting}" if noting else ""

    def _max_depth(self, root: Root) -> int:
        limit = min(self.max_oracle_steps, self.max_steps - root.index)
        return min(limit, self.horizon) if self.horizon else limit

    def _limit(self, depth: int) -> tuple[BranchOutcome, str]:
        if self.horizon and depth == self.horizon:
            return "horizon", f"cut after {depth} step(s): sero.horizon"
        return "budget", f"not won within {depth} step(s)"


def _prefix(episode: Episode, index: int, observation: Observation, env: Environment) -> Prefix:
    steps = tuple(PrefixStep(step.observation, step.action) for step in episode.steps[:index])
    return Prefix(task=episode.task, steps=steps, observation=observation, env=env)
