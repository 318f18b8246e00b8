"""SERO's branches: choose roots, restore them, let the oracle act, score and weight every step.

Source: arXiv 2610.19397 (abstract); defaults of what it leaves open are in docs/methods.md. Three
passes: the oracle executes all branches in the real environment, then one `score` call gives the
behavior policy's log-probabilities of every oracle action, then the weights follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from sero_core.collect import Engine
from sero_core.config import SeroConfig
from sero_core.envs.admissible import is_admissible
from sero_core.envs.vector import EnvPool
from sero_core.prompts import PastStep, Prompt, PromptBuilder, RenderedAction, task_text
from sero_core.reachability import StepWeight, reachability_weights
from sero_core.types import (
    Branch,
    BranchOutcome,
    BranchStep,
    Environment,
    Episode,
    Group,
    Observation,
    Oracle,
    OracleError,
    Prefix,
    PrefixStep,
    RestoreMismatch,
)


@dataclass(frozen=True, slots=True)
class Root:
    """A visited state chosen as the start of a branch; `index` is the step's index."""

    episode: Episode
    index: int


@dataclass(frozen=True, slots=True)
class Executed:
    """One oracle step that was executed, before scoring."""

    observation: Observation
    action: str
    prompt: Prompt
    rendered: RenderedAction
    reward: float
    state_hash: str


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened when the oracle acted from a root."""

    root: Root
    outcome: BranchOutcome
    reason: str
    restored_hash: str
    steps: tuple[Executed, ...]
    final_observation: Observation | None


@dataclass(frozen=True, slots=True)
class Brancher:
    """Everything that stays the same from one iteration to the next."""

    engine: Engine
    envs: EnvPool
    builder: PromptBuilder
    oracle: Oracle
    config: SeroConfig
    max_steps: int
    success_reward: float
    max_new_tokens: int

    def branch(self, groups: Sequence[Group], rng: Random) -> list[Branch]:
        """Branches of all groups, in group order. Roots depend on `rng` and the episodes only."""
        roots = [root for group in groups for root in self.choose_roots(group, rng)]
        return self.branch_from(roots)

    def branch_from(self, roots: Sequence[Root]) -> list[Branch]:
        """Execute, score and weight the branches of given roots."""
        executions = [self._execute(root) for root in roots]
        steps = [step for execution in executions for step in execution.steps]
        prompts = [step.prompt.ids for step in steps]
        scores = self.engine.score(prompts, [step.rendered.token_ids for step in steps])
        probes = self._probe(prompts)
        branches: list[Branch] = []
        start = 0
        for execution in executions:
            end = start + len(execution.steps)
            branches.append(self._finish(execution, scores[start:end], probes[start:end]))
            start = end
        return branches

    def choose_roots(self, group: Group, rng: Random) -> list[Root]:
        """At most one root per episode, failed episodes first (docs/methods.md, roots)."""
        rule = self.config.root
        if rule.skip_solved_group and all(episode.is_won for episode in group.episodes):
            return []
        failed = [episode for episode in group.episodes if not episode.is_won]
        won = [episode for episode in group.episodes if episode.is_won]
        rng.shuffle(failed)
        rng.shuffle(won)
        candidates = failed if rule.rule == "failed_only" else failed + won
        return [
            Root(episode, self._root_index(episode, i, rng))
            for i, episode in enumerate(candidates[: rule.per_group])
        ]

    def _root_index(self, episode: Episode, position: int, rng: Random) -> int:
        rule, count = self.config.root.rule, len(episode.steps)
        if rule in ("disagree", "first_divergence"):
            differing = self._disagreements(episode)
            if rule == "first_divergence" and differing:
                return differing[0]
            if differing:
                return rng.choice(differing)
        if rule == "stratified":
            third = position % 3
            low, high = count * third // 3, max(count * third // 3 + 1, count * (third + 1) // 3)
            return rng.randrange(min(low, count - 1), min(high, count))
        return rng.randrange(count)

    def _disagreements(self, episode: Episode) -> list[int]:
        """Steps where the oracle, started there, would act differently from the policy."""
        env = self.envs.take(1)[0]
        env.reset(episode.task)
        differing: list[int] = []
        for step in episode.steps:
            observation = env.restore(step.snapshot)
            try:
                self.oracle.start(_prefix(episode, step.index, observation, env))
                if self.oracle.act(observation) != step.action:
                    differing.append(step.index)
            except OracleError:
                continue
        return differing

    def _execute(self, root: Root) -> Execution:
        env = self.envs.take(1)[0]
        env.reset(root.episode.task)
        try:
            observation = env.restore(root.episode.steps[root.index].snapshot)
        except RestoreMismatch as error:
            return Execution(root, "restore_mismatch", str(error), "", (), None)
        restored_hash = env.snapshot().state_hash
        steps: list[Executed] = []
        outcome, reason = self._limit(root)
        try:
            self.oracle.start(_prefix(root.episode, root.index, observation, env))
            while len(steps) < self._max_depth(root):
                step, after = self._oracle_step(root, steps, observation, env)
                steps.append(step)
                observation = after
                if after.is_won:
                    outcome, reason = "won", f"won after {len(steps)} oracle step(s)"
                    break
        except OracleError as error:
            outcome, reason = error.outcome, error.reason
        return Execution(root, outcome, reason, restored_hash, tuple(steps), observation)

    def _oracle_step(
        self, root: Root, before: Sequence[Executed], observation: Observation, env: Environment
    ) -> tuple[Executed, Observation]:
        """The oracle's next action, executed, with the prompt the policy would have seen for it."""
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
        step = Executed(
            observation=observation,
            action=action,
            prompt=prompt,
            rendered=self.builder.render(action),
            reward=self.success_reward if after.is_won else 0.0,
            state_hash=state_hash,
        )
        return step, after

    def _max_depth(self, root: Root) -> int:
        limit = min(self.config.max_oracle_steps, self.max_steps - root.index)
        return min(limit, self.config.horizon) if self.config.horizon else limit

    def _limit(self, root: Root) -> tuple[BranchOutcome, str]:
        depth = self._max_depth(root)
        if self.config.horizon and depth == self.config.horizon:
            return "horizon", f"cut after {depth} step(s): sero.horizon"
        return "budget", f"not won within {depth} step(s)"

    def _probe(self, prompts: Sequence[tuple[int, ...]]) -> list[str | None]:
        if not self.config.probe:
            return [None] * len(prompts)
        completions = self.engine.generate(
            prompts,
            temperature=0.0,
            max_new_tokens=self.max_new_tokens,
            seeds=[0] * len(prompts),
        )
        return [self.builder.parse(completion.text).action for completion in completions]

    def _finish(
        self,
        execution: Execution,
        scores: Sequence[tuple[float, ...]],
        probes: Sequence[str | None],
    ) -> Branch:
        root, config = execution.root, self.config
        weights = reachability_weights(
            scores,
            [step.rendered.scored for step in execution.steps],
            rule=config.reachability.rule,
            beta=config.reachability.beta,
        )
        is_complete = execution.outcome in ("won", "horizon")
        return Branch(
            branch_id=f"{root.episode.episode_id}t{root.index}",
            episode_id=root.episode.episode_id,
            task=root.episode.task,
            root_index=root.index,
            root_rule=config.root.rule,
            oracle=config.oracle.name,
            outcome=execution.outcome,
            reason=execution.reason,
            root_hash=root.episode.steps[root.index].snapshot.state_hash,
            restored_hash=execution.restored_hash,
            weight_rule=config.reachability.rule,
            beta=config.reachability.beta,
            is_trained=bool(execution.steps) and (is_complete or config.keep_failed),
            steps=tuple(
                _branch_step(root, depth, step, logprobs, weight, probe)
                for depth, (step, logprobs, weight, probe) in enumerate(
                    zip(execution.steps, scores, weights, probes, strict=True)
                )
            ),
            final_observation=execution.final_observation,
        )


def _prefix(episode: Episode, index: int, observation: Observation, env: Environment) -> Prefix:
    steps = tuple(PrefixStep(step.observation, step.action) for step in episode.steps[:index])
    return Prefix(task=episode.task, steps=steps, observation=observation, env=env)


def _branch_step(
    root: Root,
    depth: int,
    step: Executed,
    logprobs: tuple[float, ...],
    weight: StepWeight,
    probe: str | None,
) -> BranchStep:
    index = root.index + depth
    policy_steps = root.episode.steps
    return BranchStep(
        depth=depth,
        observation=step.observation,
        action=step.action,
        prompt=step.prompt.text,
        prompt_ids=step.prompt.ids,
        token_ids=step.rendered.token_ids,
        tokens=step.rendered.tokens,
        logprobs=logprobs,
        scored=step.rendered.scored,
        action_logprob_mean=weight.logprob_mean,
        action_logprob_sum=weight.logprob_sum,
        compatibility=weight.compatibility,
        weight=weight.weight,
        policy_action=policy_steps[index].action if index < len(policy_steps) else None,
        probe_action=probe,
        reward=step.reward,
        state_hash=step.state_hash,
    )
