"""SERO's branches: choose roots, restore them, let the oracle act, score and weight every step.

Source: arXiv 2610.19397 (abstract); defaults of what it leaves open are in docs/methods.md. The
stages are in `sero_core/branching`; each takes all branches of an iteration at once, so the
behavior policy is asked in few, large passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sero_core.branching.controls import loss_weights
from sero_core.branching.execute import ExecutedStep, Execution, Executor
from sero_core.branching.roots import Root, choose_roots
from sero_core.branching.scoring import Ingredients, Question, Scorer
from sero_core.branching.thoughts import Thought, think
from sero_core.collect import Engine, Sampling
from sero_core.config import SeroConfig
from sero_core.envs.vector import EnvPool
from sero_core.prompts import PromptBuilder, RenderedAction
from sero_core.reachability import StepWeight, reachability_weights
from sero_core.seeds import derived_random
from sero_core.types import Branch, BranchStep, Group, Oracle

__all__ = ["Brancher", "Root"]


@dataclass(frozen=True, slots=True)
class Brancher:
    """Everything that stays the same from one iteration to the next."""

    engine: Engine
    envs: EnvPool
    builder: PromptBuilder
    oracle: Oracle
    config: SeroConfig
    sampling: Sampling
    max_steps: int
    success_reward: float

    def branch(self, groups: Sequence[Group], *, seed: int, iteration: int) -> list[Branch]:
        """Branches of all groups, in group order. Roots depend on (seed, place of the group) and
        its episodes only."""
        roots = [
            root for place, group in enumerate(groups) for root in self.roots(group, seed, place)
        ]
        return self.branch_from(roots, seed=seed, iteration=iteration)

    def roots(self, group: Group, seed: int, place: int) -> list[Root]:
        """The roots of one group."""
        rng = derived_random(seed, "roots", place)
        return choose_roots(group, self.config.root, self._executor().differs, rng)

    def branch_from(self, roots: Sequence[Root], *, seed: int, iteration: int) -> list[Branch]:
        """Execute, render, score and weight the branches of given roots."""
        executor = self._executor()
        executions = [executor.execute(root) for root in roots]
        thoughts = think(
            self.config.thought,
            executions,
            builder=self.builder,
            engine=self.engine,
            sampling=self.sampling,
            seed=seed,
        )
        rendered = [
            [
                self.builder.render(step.action, thought.opening)
                for step, thought in zip(run.steps, openings, strict=True)
            ]
            for run, openings in zip(executions, thoughts, strict=True)
        ]
        questions = [
            question
            for run, openings, texts in zip(executions, thoughts, rendered, strict=True)
            for question in _questions(run, openings, texts)
        ]
        answers = iter(self._scorer().score(questions, seed))
        return [
            self._finish(
                run, openings, texts, list(islice(answers, len(run.steps))), seed, iteration
            )
            for run, openings, texts in zip(executions, thoughts, rendered, strict=True)
        ]

    def _executor(self) -> Executor:
        return Executor(
            envs=self.envs,
            builder=self.builder,
            oracle=self.oracle,
            horizon=self.config.horizon,
            max_oracle_steps=self.config.max_oracle_steps,
            max_steps=self.max_steps,
            success_reward=self.success_reward,
        )

    def _scorer(self) -> Scorer:
        config = self.config.reachability
        return Scorer(
            engine=self.engine,
            builder=self.builder,
            rules=frozenset((config.rule, *config.also_log)),
            probe=self.config.probe,
            num_samples=config.num_samples,
            max_new_tokens=self.sampling.max_new_tokens,
        )

    def _finish(
        self,
        run: Execution,
        thoughts: Sequence[Thought],
        rendered: Sequence[RenderedAction],
        ingredients: Sequence[Ingredients],
        seed: int,
        iteration: int,
    ) -> Branch:
        root, config = run.root, self.config
        reach = config.reachability
        weights = reachability_weights(ingredients, rule=reach.rule, beta=reach.beta, tau=reach.tau)
        trained = loss_weights(
            [weight.weight for weight in weights],
            config.control,
            iteration=iteration,
            seed=seed,
            branch_id=root.branch_id,
        )
        is_complete = run.outcome in ("won", "horizon")
        steps = [
            _branch_step(root, depth, *parts)
            for depth, parts in enumerate(
                zip(run.steps, thoughts, rendered, ingredients, weights, trained, strict=True)
            )
        ]
        return Branch(
            branch_id=root.branch_id,
            episode_id=root.episode.episode_id,
            task=root.episode.task,
            root_index=root.index,
            root_rule=root.rule,
            oracle=config.oracle.name,
            outcome=run.outcome,
            reason=run.reason,
            root_hash=root.episode.steps[root.index].snapshot.state_hash,
            restored_hash=run.restored_hash,
            weight_rule=reach.rule,
            beta=reach.beta,
            tau=reach.tau,
            control=None if config.control is None else config.control.name,
            is_trained=bool(run.steps) and (is_complete or config.keep_failed),
            steps=tuple(steps),
            final_observation=run.final_observation,
        )


def _questions(
    run: Execution, thoughts: Sequence[Thought], rendered: Sequence[RenderedAction]
) -> list[Question]:
    return [
        Question(
            name=f"{run.root.branch_id}k{depth}",
            prompt_ids=step.prompt.ids,
            action=step.action,
            admissible=step.observation.admissible,
            opening=thought.opening,
            rendered=text,
        )
        for depth, (step, thought, text) in enumerate(
            zip(run.steps, thoughts, rendered, strict=True)
        )
    ]


def _branch_step(
    root: Root,
    depth: int,
    step: ExecutedStep,
    thought: Thought,
    rendered: RenderedAction,
    ingredients: Ingredients,
    weight: StepWeight,
    loss_weight: float,
) -> BranchStep:
    index = root.index + depth
    policy_steps = root.episode.steps
    is_whole_answer = thought.source == "teacher"
    return BranchStep(
        depth=depth,
        observation=step.observation,
        action=step.action,
        prompt=step.prompt.text,
        prompt_ids=step.prompt.ids,
        token_ids=rendered.token_ids,
        tokens=rendered.tokens,
        logprobs=ingredients.logprobs,
        scored=rendered.scored,
        action_logprob_mean=weight.logprob_mean,
        action_logprob_sum=weight.logprob_sum,
        compatibility=weight.compatibility,
        weight=weight.weight,
        policy_action=policy_steps[index].action if index < len(policy_steps) else None,
        probe_action=ingredients.probe_action,
        reward=step.reward,
        state_hash=step.state_hash,
        thought=thought.source,
        loss_mask=(True,) * len(rendered.token_ids) if is_whole_answer else None,
        loss_weight=None if loss_weight == weight.weight else loss_weight,
        greedy_logprob_mean=ingredients.greedy_logprob_mean,
        admissible_logprobs=ingredients.admissible_logprobs,
        admissible_index=ingredients.admissible_index,
        num_samples=ingredients.num_samples,
        num_matches=ingredients.num_matches,
    )
