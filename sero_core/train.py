"""The training loop: collect, branch, credit, batch, update, evaluate, log. It knows no algorithm.

Resume: everything random is derived from (seed, iteration, …) and the rest is in the checkpoint, so
2N iterations equal N, kill -9, N: same weights, same tasks, same log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sero_core.batch import Batch, OracleBatch, build_batch, build_oracle_batch
from sero_core.checkpoint import TrainerState, prepare_checkpoint
from sero_core.conditions import evaluation_conditions
from sero_core.dynamic_sampling import Collected, collect_rounds, dynamic_metrics
from sero_core.evaluate import evaluate, evaluation_number
from sero_core.forward import training_passes
from sero_core.kl_reward import subtract_kl
from sero_core.metrics import (
    branch_metrics,
    branch_shares,
    evaluation_metrics,
    rollout_metrics,
)
from sero_core.rows import oracle_rows, policy_rows
from sero_core.seeds import derive_seed, derived_random
from sero_core.setup import ORACLE_OPTIMIZER, Trainer, evaluation_sampling, training_sampling
from sero_core.types import Branch, Group, IterationRecord, Sink, Task
from sero_core.types_evaluation import Evaluation
from sero_core.update import update


class StopRequested(Exception):
    """A graceful stop. The iteration in progress is abandoned; the last finished one is kept."""


def train(
    trainer: Trainer,
    out: Path,
    sinks: Sequence[Sink],
    state: TrainerState | None,
    report: Callable[[IterationRecord], None],
) -> TrainerState:
    """Train from `state` (None = from the start) to `num_iterations`; returns the final state.

    A record reaches every sink before the checkpoint that contains its iteration counts. On a stop
    request a checkpoint of the last finished iteration is written and `StopRequested` raised.
    """
    config = trainer.config

    def emit(record: IterationRecord) -> None:
        for sink in sinks:
            sink.write(record)
        report(record)

    def checkpoint(current: TrainerState, record: IterationRecord | None) -> None:
        prepared = prepare_checkpoint(
            out,
            trainer.policy,
            trainer.optimizers,
            current,
            config.keep_checkpoints,
            trainer.critic,
        )
        if record is not None:
            emit(replace(record, checkpoint=prepared.record))
        prepared.commit()

    if state is None:
        state = TrainerState(0, config.trajectory_hash(), config.seed, {})
        started = time.monotonic()
        evaluations = evaluate_panels(trainer, 0)
        metrics = evaluation_metrics(evaluations)
        metrics["time/eval_s"] = time.monotonic() - started
        checkpoint(state, IterationRecord(0, metrics, (), (), evaluations, None))
    while state.iteration < config.num_iterations:
        try:
            record, following = iterate(trainer, state)
        except StopRequested:
            checkpoint(state, None)
            raise
        state = following
        is_last = state.iteration == config.num_iterations
        if is_last or state.iteration % config.checkpoint_every == 0:
            checkpoint(state, record)
        else:
            emit(record)
    return state


def iterate(trainer: Trainer, state: TrainerState) -> tuple[IterationRecord, TrainerState]:
    """One iteration: from the state after iteration i to the record and state of i + 1."""
    config, iteration, clock = trainer.config, state.iteration + 1, _Clock()
    tasks = sample_tasks(trainer.tasks, config.seed, iteration, config.rollout.num_tasks)
    collected = _collect(trainer, tasks, iteration)
    groups = collected.groups
    clock.lap("rollout")
    branches = _branch(trainer, groups, iteration)
    clock.lap("branch")
    charged, penalty = _charge_kl(trainer, groups)
    values = None if trainer.critic is None else trainer.critic.predict(groups)
    credits = config.estimator(charged, values)
    batch = build_batch(policy_rows(groups, credits.advantages, config.sampling.temperature))
    oracle_batch = build_oracle_batch(oracle_rows(branches))
    losses = _learn(trainer, batch, oracle_batch, iteration)
    if trainer.critic is not None and values is not None and credits.returns is not None:
        seed = derive_seed(config.seed, "critic", iteration)
        losses |= trainer.critic.update(groups, values, credits.returns, seed)
    clock.lap("update")
    is_due = config.evaluation.every and iteration % config.evaluation.every == 0
    is_last = iteration == config.num_iterations
    evaluations = evaluate_panels(trainer, iteration) if is_due or is_last else ()
    clock.lap("eval")
    progress = _progress(state.progress, collected.played, branches)
    metrics = rollout_metrics(collected.played) | credits.metrics | penalty | losses
    metrics |= evaluation_metrics(evaluations)
    if config.rollout.max_rounds > 1:
        metrics |= dynamic_metrics(collected)
    if trainer.brancher is not None:
        metrics |= branch_metrics(branches)
        metrics |= branch_shares(groups, branches, metrics | clock.laps)
    record = IterationRecord(
        iteration, metrics | progress | clock.laps, tuple(groups), branches, evaluations, None
    )
    return record, replace(state, iteration=iteration, progress=progress)


def sample_tasks(tasks: Sequence[Task], seed: int, iteration: int, count: int) -> list[Task]:
    """Tasks of an iteration: consecutive slices of seeded permutations, one per pass over the
    split.

    A function of (seed, iteration) alone, so resuming needs no stream state. No task repeats within
    an iteration, except where a pass ends inside it.
    """
    start = (iteration - 1) * count
    chosen: list[Task] = []
    for position in range(start, start + count):
        epoch, index = divmod(position, len(tasks))
        chosen.append(tasks[_permutation(seed, epoch, len(tasks))[index]])
    return chosen


def evaluate_panels(trainer: Trainer, iteration: int) -> tuple[Evaluation, ...]:
    """Every panel under the policy's current weights."""
    config = trainer.config
    return tuple(
        evaluate(
            trainer.agent,
            panel,
            config.evaluation.protocol,
            sampling=evaluation_sampling(config),
            iteration=iteration,
            number=evaluation_number(iteration, config.evaluation.every),
            conditions=evaluation_conditions(
                panel,
                evaluation=config.evaluation,
                env=config.env,
                prompt=config.prompt,
                engine=config.engine,
                rollout=config.rollout,
                max_new_tokens=config.sampling.max_new_tokens,
                builder=trainer.collector.builder,
                policy=trainer.policy,
            ),
        )
        for panel in trainer.panels
    )


def _charge_kl(
    trainer: Trainer, groups: Sequence[Group]
) -> tuple[Sequence[Group], dict[str, float]]:
    """Groups as the estimator sees them, and train/kl, where KL is a penalty on rewards."""
    config = trainer.config
    if trainer.reference is None or config.loss.kl_in == "loss":
        return groups, {}
    passes = training_passes(trainer.policy, config.optimizer)
    temperature = config.sampling.temperature
    return subtract_kl(groups, trainer.reference, config.loss, temperature, passes)


def _collect(trainer: Trainer, tasks: Sequence[Task], iteration: int) -> Collected:
    """The iteration's groups. Episode ids of further rounds are `i<iteration>r<round>g…`."""
    config, seed = trainer.config, derive_seed(trainer.config.seed, "collect", iteration)

    def play(chosen: Sequence[Task], number: int) -> list[Group]:
        return trainer.collector.collect(
            chosen,
            group_size=config.rollout.group_size,
            sampling=training_sampling(config),
            seed=seed if number == 1 else derive_seed(seed, number),
            prefix=f"i{iteration}" if number == 1 else f"i{iteration}r{number}",
        )

    return collect_rounds(
        play, tasks, trainer.tasks, max_rounds=config.rollout.max_rounds, seed=seed
    )


def _learn(
    trainer: Trainer, batch: Batch, oracle_batch: OracleBatch | None, iteration: int
) -> dict[str, float]:
    """The policy's update; nothing while only the critic is trained."""
    config = trainer.config
    if trainer.critic is not None and iteration <= trainer.critic.config.warmup_iterations:
        return {}
    return update(
        trainer.policy,
        trainer.optimizer,
        batch,
        oracle_batch,
        loss=config.loss,
        optim=config.optimizer,
        sero=config.sero,
        reference=trainer.reference,
        seed=derive_seed(config.seed, "update", iteration),
        oracle_optimizer=trainer.optimizers.get(ORACLE_OPTIMIZER),
    )


def _branch(trainer: Trainer, groups: Sequence[Group], iteration: int) -> tuple[Branch, ...]:
    if trainer.brancher is None:
        return ()
    seed = derive_seed(trainer.config.seed, "branch", iteration)
    return tuple(trainer.brancher.branch(groups, seed=seed, iteration=iteration))


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    order = list(range(count))
    derived_random(seed, "tasks", epoch).shuffle(order)
    return tuple(order)


def _progress(
    before: dict[str, float], groups: Sequence[Group], branches: Sequence[Branch]
) -> dict[str, float]:
    """Running totals: environment steps (oracle steps apart), generated tokens, episodes,
    branches.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    steps = [step for episode in episodes for step in episode.steps]
    added = {
        "progress/env_steps": len(steps),
        "progress/oracle_steps": sum(len(branch.steps) for branch in branches),
        "progress/tokens": sum(len(step.completion.token_ids) for step in steps),
        "progress/episodes": len(episodes),
        "progress/branches": len(branches),
    }
    return {key: before.get(key, 0.0) + value for key, value in added.items()}


class _Clock:
    """Seconds of each phase as `time/<phase>_s`, and their sum as `time/iteration_s`."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.laps: dict[str, float] = {"time/iteration_s": 0.0}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[f"time/{name}_s"] = now - self._last
        self.laps["time/iteration_s"] += now - self._last
        self._last = now
