"""The log's wire format: an `IterationRecord` as one line of JSON.

`sero train` appends these lines to `<out>/records.jsonl`; the worker ships the same lines to
Postgres. One line is one iteration, complete or absent, so a half-written iteration is never read.
The shape is what `IterationPayload` says: pydantic models that the database loader and the tests
share.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from sero_core.types import Branch, BranchStep, Episode, IterationRecord, Step, Task
from sero_core.types_evaluation import Evaluation

SCHEMA_VERSION = 1


class Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class TaskPayload(Payload):
    task_id: str
    env: str
    split: str
    task_type: str
    content_hash: str


class StepPayload(Payload):
    """One policy step. `observation` and `admissible` are what the policy saw before acting."""

    index: int
    observation: str
    admissible: list[str]
    response: str
    action: str
    token_ids: list[int]
    logprobs: list[float]
    is_valid: bool
    is_admissible: bool
    reward: float
    state_hash: str


class EpisodePayload(Payload):
    """`score` was not written by version 0.1, whose tasks were won or not."""

    episode_id: str
    group_index: int
    index: int
    task: TaskPayload
    is_won: bool
    is_truncated: bool
    score: float = Field(default_factory=lambda data: float(data["is_won"]))
    reward: float
    final_observation: str
    steps: list[StepPayload]


class BranchStepPayload(Payload):
    """Depth k of a branch. `tokens` are the decoded pieces of `token_ids`; see types.BranchStep.

    The fields from `thought` on are None in logs of version 0.1.
    """

    depth: int
    observation: str
    admissible: list[str]
    prompt: str
    action: str
    token_ids: list[int]
    tokens: list[str]
    logprobs: list[float]
    scored: list[bool]
    action_logprob_mean: float
    action_logprob_sum: float
    compatibility: float
    weight: float
    policy_action: str | None
    probe_action: str | None
    reward: float
    state_hash: str
    thought: str | None = None
    loss_mask: list[bool] | None = None
    loss_weight: float | None = None
    greedy_logprob_mean: float | None = None
    admissible_logprobs: list[float] | None = None
    admissible_index: int | None = None
    num_samples: int | None = None
    num_matches: int | None = None


class BranchPayload(Payload):
    branch_id: str
    episode_id: str
    task: TaskPayload
    root_index: int
    root_rule: str
    oracle: str
    outcome: str
    reason: str
    root_hash: str
    restored_hash: str
    weight_rule: str
    beta: float
    is_trained: bool
    effective_depth: float
    final_observation: str | None
    steps: list[BranchStepPayload]
    tau: float = 1.0
    control: str | None = None
    is_episode_won: bool | None = None
    """Only where the episode itself is not in the record."""


class RescorePayload(Payload):
    """A stored branch under the policy of the record's iteration; lists by depth."""

    branch_id: str
    weights_hash: str
    effective_depth: float
    weights: list[float]
    compatibilities: list[float]
    logprob_means: list[float]


class EvalResultPayload(Payload):
    """Version 0.1 wrote neither `num_episodes` (it played each task once) nor `mean_score` (its
    games are won or not).
    """

    task_type: str
    num_tasks: int
    num_episodes: int = Field(default_factory=lambda data: data["num_tasks"])
    num_won: int
    rate: float
    low: float
    high: float
    mean_score: float = Field(default_factory=lambda data: data["rate"])
    mean_steps: float


class OutcomePayload(Payload):
    task_id: str
    task_type: str
    seed: int | None = None
    is_won: bool
    score: float = Field(default_factory=lambda data: float(data["is_won"]))
    num_steps: int


class ConditionsPayload(Payload):
    """See types.EvalConditions."""

    protocol: str
    baseline: str
    seeds: list[int]
    temperature: float
    max_new_tokens: int
    max_steps: int
    env_version: str
    data_hash: str
    prompt: str
    prompt_hash: str
    engine: str
    policy_hash: str


class EvaluationPayload(Payload):
    """`macro_rate`, `conditions` and the seeds of outcomes are None in logs of version 0.1."""

    evaluation_id: str
    panel: str
    panel_hash: str
    macro_rate: float | None = None
    conditions: ConditionsPayload | None = None
    results: list[EvalResultPayload]
    outcomes: list[OutcomePayload]


class CheckpointPayload(Payload):
    iteration: int
    path: str
    weights_hash: str
    num_bytes: int


class IterationPayload(Payload):
    """One line of `records.jsonl`."""

    schema_version: int = SCHEMA_VERSION
    iteration: int
    written_at: datetime
    metrics: dict[str, float]
    episodes: list[EpisodePayload]
    branches: list[BranchPayload]
    evaluations: list[EvaluationPayload]
    checkpoint: CheckpointPayload | None
    rescores: list[RescorePayload] = []


def to_payload(record: IterationRecord) -> IterationPayload:
    """The wire form of a record. Non-finite floats stay (JSON `NaN`, `Infinity`), never dropped."""
    return IterationPayload(
        iteration=record.iteration,
        written_at=datetime.now(UTC),
        metrics=record.metrics,
        episodes=[
            _episode(episode, group_index)
            for group_index, group in enumerate(record.groups)
            for episode in group.episodes
        ],
        branches=[_branch(branch) for branch in record.branches],
        evaluations=[_evaluation(evaluation) for evaluation in record.evaluations],
        checkpoint=None
        if record.checkpoint is None
        else CheckpointPayload(
            iteration=record.checkpoint.iteration,
            path=record.checkpoint.path,
            weights_hash=record.checkpoint.weights_hash,
            num_bytes=record.checkpoint.num_bytes,
        ),
        rescores=[
            RescorePayload(
                branch_id=rescore.branch_id,
                weights_hash=rescore.weights_hash,
                effective_depth=rescore.effective_depth,
                weights=list(rescore.weights),
                compatibilities=list(rescore.compatibilities),
                logprob_means=list(rescore.logprob_means),
            )
            for rescore in record.rescores
        ],
    )


def to_line(record: IterationRecord) -> str:
    """One JSON line without its newline."""
    return to_payload(record).model_dump_json()


def from_line(line: str) -> IterationPayload:
    """Parse a line. Errors: pydantic.ValidationError naming the field."""
    return IterationPayload.model_validate_json(line)


def _task(task: Task) -> TaskPayload:
    return TaskPayload(
        task_id=task.task_id,
        env=task.env,
        split=task.split,
        task_type=task.task_type,
        content_hash=task.content_hash,
    )


def _step(step: Step) -> StepPayload:
    return StepPayload(
        index=step.index,
        observation=step.observation.text,
        admissible=list(step.observation.admissible),
        response=step.completion.text,
        action=step.action,
        token_ids=list(step.completion.token_ids),
        logprobs=list(step.completion.logprobs),
        is_valid=step.is_valid,
        is_admissible=step.is_admissible,
        reward=step.reward,
        state_hash=step.snapshot.state_hash,
    )


def _episode(episode: Episode, group_index: int) -> EpisodePayload:
    return EpisodePayload(
        episode_id=episode.episode_id,
        group_index=group_index,
        index=episode.index,
        task=_task(episode.task),
        is_won=episode.is_won,
        is_truncated=episode.is_truncated,
        score=episode.score,
        reward=episode.reward,
        final_observation=episode.final_observation.text,
        steps=[_step(step) for step in episode.steps],
    )


def _branch_step(step: BranchStep) -> BranchStepPayload:
    return BranchStepPayload(
        depth=step.depth,
        observation=step.observation.text,
        admissible=list(step.observation.admissible),
        prompt=step.prompt,
        action=step.action,
        token_ids=list(step.token_ids),
        tokens=list(step.tokens),
        logprobs=list(step.logprobs),
        scored=list(step.scored),
        action_logprob_mean=step.action_logprob_mean,
        action_logprob_sum=step.action_logprob_sum,
        compatibility=step.compatibility,
        weight=step.weight,
        policy_action=step.policy_action,
        probe_action=step.probe_action,
        reward=step.reward,
        state_hash=step.state_hash,
        thought=step.thought,
        loss_mask=None if step.loss_mask is None else list(step.loss_mask),
        loss_weight=step.loss_weight,
        greedy_logprob_mean=step.greedy_logprob_mean,
        admissible_logprobs=None
        if step.admissible_logprobs is None
        else list(step.admissible_logprobs),
        admissible_index=step.admissible_index,
        num_samples=step.num_samples,
        num_matches=step.num_matches,
    )


def _branch(branch: Branch) -> BranchPayload:
    final = branch.final_observation
    return BranchPayload(
        branch_id=branch.branch_id,
        episode_id=branch.episode_id,
        task=_task(branch.task),
        root_index=branch.root_index,
        root_rule=branch.root_rule,
        oracle=branch.oracle,
        outcome=branch.outcome,
        reason=branch.reason,
        root_hash=branch.root_hash,
        restored_hash=branch.restored_hash,
        weight_rule=branch.weight_rule,
        beta=branch.beta,
        is_trained=branch.is_trained,
        effective_depth=branch.effective_depth,
        final_observation=None if final is None else final.text,
        steps=[_branch_step(step) for step in branch.steps],
        tau=branch.tau,
        control=branch.control,
        is_episode_won=branch.is_episode_won,
    )


def _evaluation(evaluation: Evaluation) -> EvaluationPayload:
    return EvaluationPayload(
        evaluation_id=evaluation.evaluation_id,
        panel=evaluation.panel,
        panel_hash=evaluation.panel_hash,
        macro_rate=evaluation.macro_rate,
        conditions=ConditionsPayload.model_validate(asdict(evaluation.conditions)),
        results=[
            EvalResultPayload(
                task_type=result.task_type,
                num_tasks=result.num_tasks,
                num_episodes=result.num_episodes,
                num_won=result.num_won,
                rate=result.rate,
                low=result.low,
                high=result.high,
                mean_score=result.mean_score,
                mean_steps=result.mean_steps,
            )
            for result in evaluation.results
        ],
        outcomes=[
            OutcomePayload.model_validate(asdict(outcome)) for outcome in evaluation.outcomes
        ],
    )
