"""Turns a log line into rows for COPY. Pure: columns here, values in the same order below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from backend.db.texts import TextCollector
from sero_core.records import (
    BranchPayload,
    EpisodePayload,
    EvaluationPayload,
    IterationPayload,
    TaskPayload,
)

Row = tuple[object, ...]


class Place(NamedTuple):
    """Whose rows these are."""

    run_id: int
    job_id: int
    iteration: int


SUMMARY_KEYS = {
    "success": "rollout/success",
    "effective_depth": "sero/effective_depth",
    "eval_valid_seen": "eval/valid_seen",
    "eval_valid_unseen": "eval/valid_unseen",
    "eval_test": "eval/test",
}
"""Summary column of `iterations` -> metric key."""

TASK_COLUMNS = ("task_id", "env", "split", "task_type", "content_hash")
METRIC_COLUMNS = ("run_id", "job_id", "key", "iteration", "value")
EPISODE_COLUMNS = (
    *("run_id", "job_id", "iteration", "ordinal", "episode_id", "group_index", "index"),
    *TASK_COLUMNS,
    *("is_won", "is_truncated", "score", "reward", "num_steps", "final_observation_id"),
)
STEP_COLUMNS = (
    *("run_id", "episode_id", "index", "observation_id", "admissible_id", "response_id"),
    *("action", "token_ids", "logprobs", "is_valid", "is_admissible", "reward", "state_hash"),
)
BRANCH_COLUMNS = (
    *("run_id", "job_id", "iteration", "ordinal", "branch_id", "episode_id"),
    *TASK_COLUMNS,
    *("root_index", "root_rule", "oracle", "outcome", "reason", "root_hash", "restored_hash"),
    *("weight_rule", "beta", "is_trained", "is_episode_won", "effective_depth", "num_steps"),
    *("weights", "final_observation_id", "tau", "control", "actions", "differs_at_root"),
)
RESCORE_COLUMNS = (
    *("run_id", "job_id", "iteration", "branch_id", "weights_hash", "effective_depth"),
    *("weights", "compatibilities", "logprob_means", "created_at"),
)
BRANCH_STEP_COLUMNS = (
    *("run_id", "job_id", "iteration", "branch_id", "depth"),
    *("observation_id", "admissible_id", "prompt_id", "action"),
    *("token_ids", "tokens", "logprobs", "scored"),
    *("action_logprob_mean", "action_logprob_sum", "compatibility", "weight"),
    *("policy_action", "probe_action", "reward", "state_hash"),
    *("thought", "loss_mask", "loss_weight", "greedy_logprob_mean"),
    *("admissible_logprobs", "admissible_index", "num_samples", "num_matches"),
)
ITERATION_COLUMNS = (
    *("run_id", "job_id", "iteration", "attempt", "payload_hash", "written_at"),
    *("num_episodes", "num_branches", *SUMMARY_KEYS),
)
EVALUATION_COLUMNS = (
    *("run_id", "job_id", "evaluation_id", "iteration", "panel", "panel_hash"),
    *("macro_rate", "conditions", "created_at"),
)
CHECKPOINT_COLUMNS = (
    *("run_id", "job_id", "iteration", "path", "weights_hash", "num_bytes", "created_at"),
)
EVAL_RESULT_COLUMNS = (
    *("run_id", "job_id", "evaluation_id", "ordinal", "task_type"),
    *("num_tasks", "num_episodes", "num_won", "rate", "low", "high"),
    *("mean_score", "mean_steps"),
)
EVAL_OUTCOME_COLUMNS = (
    *("run_id", "job_id", "evaluation_id", "ordinal"),
    *("task_id", "task_type", "seed", "is_won", "score", "num_steps"),
)


def iteration_row(place: Place, attempt: int, payload_hash: int, payload: IterationPayload) -> Row:
    """A summary without a finite value is null."""
    return (
        *place,
        attempt,
        payload_hash,
        payload.written_at,
        len(payload.episodes),
        len(payload.branches),
        *(_finite(payload.metrics.get(key)) for key in SUMMARY_KEYS.values()),
    )


def metric_rows(place: Place, metrics: dict[str, float]) -> Iterator[Row]:
    for key, value in metrics.items():
        yield place.run_id, place.job_id, key, place.iteration, value


def episode_rows(
    place: Place, episodes: Sequence[EpisodePayload], texts: TextCollector
) -> list[Row]:
    return [
        (
            *place,
            ordinal,
            episode.episode_id,
            episode.group_index,
            episode.index,
            *_task(episode.task),
            episode.is_won,
            episode.is_truncated,
            episode.score,
            episode.reward,
            len(episode.steps),
            texts.add(episode.final_observation),
        )
        for ordinal, episode in enumerate(episodes)
    ]


def step_rows(place: Place, episodes: Iterable[EpisodePayload], texts: TextCollector) -> list[Row]:
    return [
        (
            place.run_id,
            episode.episode_id,
            step.index,
            texts.add(step.observation),
            texts.add_list(step.admissible),
            texts.add(step.response),
            step.action,
            step.token_ids,
            step.logprobs,
            step.is_valid,
            step.is_admissible,
            step.reward,
            step.state_hash,
        )
        for episode in episodes
        for step in episode.steps
    ]


def branch_rows(place: Place, payload: IterationPayload, texts: TextCollector) -> list[Row]:
    is_won = {episode.episode_id: episode.is_won for episode in payload.episodes}
    return [
        (
            *place,
            ordinal,
            branch.branch_id,
            branch.episode_id,
            *_task(branch.task),
            branch.root_index,
            branch.root_rule,
            branch.oracle,
            branch.outcome,
            branch.reason,
            branch.root_hash,
            branch.restored_hash,
            branch.weight_rule,
            branch.beta,
            branch.is_trained,
            is_won.get(branch.episode_id, branch.is_episode_won),
            branch.effective_depth,
            len(branch.steps),
            [step.weight for step in branch.steps],
            None if branch.final_observation is None else texts.add(branch.final_observation),
            branch.tau,
            branch.control,
            [step.action for step in branch.steps],
            _differs_at_root(branch),
        )
        for ordinal, branch in enumerate(payload.branches)
    ]


def _differs_at_root(branch: BranchPayload) -> bool | None:
    """None: no oracle step, or no step of the policy there."""
    first = branch.steps[0] if branch.steps else None
    if first is None or first.policy_action is None:
        return None
    return first.action != first.policy_action


def rescore_rows(place: Place, payload: IterationPayload) -> Iterator[Row]:
    for rescore in payload.rescores:
        yield (
            *place,
            rescore.branch_id,
            rescore.weights_hash,
            rescore.effective_depth,
            rescore.weights,
            rescore.compatibilities,
            rescore.logprob_means,
            payload.written_at,
        )


def branch_step_rows(
    place: Place, branches: Iterable[BranchPayload], texts: TextCollector
) -> list[Row]:
    return [
        (
            *place,
            branch.branch_id,
            step.depth,
            texts.add(step.observation),
            texts.add_list(step.admissible),
            texts.add(step.prompt),
            step.action,
            step.token_ids,
            step.tokens,
            step.logprobs,
            step.scored,
            step.action_logprob_mean,
            step.action_logprob_sum,
            step.compatibility,
            step.weight,
            step.policy_action,
            step.probe_action,
            step.reward,
            step.state_hash,
            step.thought,
            step.loss_mask,
            step.loss_weight,
            step.greedy_logprob_mean,
            step.admissible_logprobs,
            step.admissible_index,
            step.num_samples,
            step.num_matches,
        )
        for branch in branches
        for step in branch.steps
    ]


def evaluation_rows(place: Place, payload: IterationPayload) -> Iterator[Row]:
    for evaluation in payload.evaluations:
        yield (
            place.run_id,
            place.job_id,
            evaluation.evaluation_id,
            place.iteration,
            evaluation.panel,
            evaluation.panel_hash,
            evaluation.macro_rate,
            evaluation.conditions and evaluation.conditions.model_dump(mode="json"),
            payload.written_at,
        )


def checkpoint_rows(place: Place, payload: IterationPayload) -> Iterator[Row]:
    if (checkpoint := payload.checkpoint) is not None:
        files = checkpoint.path, checkpoint.weights_hash, checkpoint.num_bytes
        yield (*place, *files, payload.written_at)


def eval_result_rows(place: Place, evaluations: Iterable[EvaluationPayload]) -> Iterator[Row]:
    for evaluation in evaluations:
        for ordinal, result in enumerate(evaluation.results):
            yield (
                place.run_id,
                place.job_id,
                evaluation.evaluation_id,
                ordinal,
                result.task_type,
                result.num_tasks,
                result.num_episodes,
                result.num_won,
                result.rate,
                result.low,
                result.high,
                result.mean_score,
                result.mean_steps,
            )


def eval_outcome_rows(place: Place, evaluations: Iterable[EvaluationPayload]) -> Iterator[Row]:
    for evaluation in evaluations:
        for ordinal, outcome in enumerate(evaluation.outcomes):
            yield (
                place.run_id,
                place.job_id,
                evaluation.evaluation_id,
                ordinal,
                outcome.task_id,
                outcome.task_type,
                outcome.seed,
                outcome.is_won,
                outcome.score,
                outcome.num_steps,
            )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _task(task: TaskPayload) -> Row:
    return task.task_id, task.env, task.split, task.task_type, task.content_hash
