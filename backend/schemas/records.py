"""What a run wrote: metrics, episodes, branches, evaluations, checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from backend.schemas.base import Number, Outcome, Page, Schema
from backend.schemas.runs import RunSummary


class MetricPoint(Schema):
    """Values of one bucket of iterations. `iteration` is its newest one, `last` the value there."""

    iteration: int
    first_iteration: int
    last: Number
    min: Number
    max: Number
    num_values: int
    num_not_finite: int


class MetricSeries(Schema):
    key: str
    points: list[MetricPoint]


class MetricsResponse(Schema):
    """`bucket_iterations` = iterations per bucket; 1 = nothing was merged."""

    run_id: int
    bucket_iterations: int
    last_iteration: int | None
    series: list[MetricSeries]


class MetricKey(Schema):
    key: str
    num_values: int
    first_iteration: int
    last_iteration: int


class MetricKeysResponse(Schema):
    run_id: int
    keys: list[MetricKey]


class TaskInfo(Schema):
    task_id: str
    env: str
    split: str
    task_type: str
    content_hash: str


class EpisodeSummary(Schema):
    """`id` is the permalink `<run_id>-<episode_id>`. `score` is the dense task score from 0 to 1
    (1 or 0 where the environment knows only won or not); it is never trained on.
    """

    id: str
    run_id: int
    episode_id: str
    job_id: int
    iteration: int
    group_index: int
    index: int
    task: TaskInfo
    is_won: bool
    is_truncated: bool
    score: Number
    reward: Number
    num_steps: int
    num_branches: int


class StepInfo(Schema):
    """One policy step. `logprobs` are natural logs, one per token of `token_ids`."""

    index: int
    observation: str
    admissible: list[str]
    response: str
    action: str
    token_ids: list[int]
    logprobs: list[Number]
    is_valid: bool
    is_admissible: bool
    reward: Number
    state_hash: str


class BranchRef(Schema):
    """A branch of an episode, for links and for the marks at its root step."""

    id: str
    branch_id: str
    root_index: int
    outcome: Outcome
    effective_depth: Number
    num_steps: int


class EpisodePage(Page[EpisodeSummary]):
    """A page of episodes."""


class EpisodeDetail(EpisodeSummary):
    final_observation: str
    steps: list[StepInfo]
    branches: list[BranchRef]


class BranchSummary(Schema):
    """`id` is the permalink `<run_id>-<branch_id>`. `weights` by depth, `weights[0]` = 1. `tau`
    belongs to rule `admissible`; `control` names the study whose weights the loss used instead."""

    id: str
    run_id: int
    run_name: str
    branch_id: str
    episode_id: str
    job_id: int
    iteration: int
    task: TaskInfo
    root_index: int
    root_rule: str
    oracle: str
    outcome: Outcome
    reason: str
    weight_rule: str
    beta: float
    is_trained: bool
    is_episode_won: bool | None = Field(description="Whether the policy's own episode won")
    effective_depth: Number
    num_steps: int
    weights: list[Number]
    tau: float
    control: str | None
    actions: list[str] = Field(default=[], description="The oracle's actions by depth")
    differs_at_root: bool | None = Field(
        default=None, description="Whether the oracle's first action is not the policy's"
    )


class BranchFacets(Schema):
    """How many of the matching branches have each value."""

    outcome: dict[str, int]
    task_type: dict[str, int]
    split: dict[str, int]
    oracle: dict[str, int]
    is_episode_won: dict[str, int] = Field(description="`true`, `false`, `unknown`")


class BranchPage(Page[BranchSummary]):
    """A page of branches."""

    facets: BranchFacets | None = None


class RescoreInfo(Schema):
    """A branch under the policy of the checkpoint of `iteration`; lists by depth."""

    iteration: int
    job_id: int
    weights_hash: str
    effective_depth: Number
    weights: list[Number]
    compatibilities: list[Number]
    logprob_means: list[Number]
    created_at: datetime


class RescoresResponse(Schema):
    branch_id: str
    rescores: list[RescoreInfo]


class BranchStepInfo(Schema):
    """Depth k of a branch. `scored[i]`: token i belongs to the action span that the weight uses.

    `compatibility` = c_k by the branch's `weight_rule`, `beta` and `tau` (docs/methods.md);
    `weight` = w_k = product of the `compatibility` of the steps before, so w_0 = 1.
    `policy_action`: what the policy's episode did at this time; `probe_action`: what the policy
    would do greedily in the oracle's state. `thought`: where the text before the action came from.
    `loss_mask` null: `scored`; `loss_weight` null: `weight`. The rest are ingredients of weight
    rules, null where they were not asked for; `reweigh` reads them.
    """

    depth: int
    observation: str
    admissible: list[str]
    prompt: str
    action: str
    token_ids: list[int]
    tokens: list[str]
    logprobs: list[Number]
    scored: list[bool]
    action_logprob_mean: Number
    action_logprob_sum: Number
    compatibility: Number
    weight: Number
    policy_action: str | None
    probe_action: str | None
    reward: Number
    state_hash: str
    thought: str | None
    loss_mask: list[bool] | None
    loss_weight: Number
    greedy_logprob_mean: Number
    admissible_logprobs: list[Number] | None
    admissible_index: int | None
    num_samples: int | None
    num_matches: int | None


class BranchDetail(BranchSummary):
    """A branch with every step, and the policy episode it starts from (null: not stored)."""

    root_hash: str
    restored_hash: str
    is_restored_exactly: bool
    final_observation: str | None
    steps: list[BranchStepInfo]
    episode: EpisodeDetail | None


BranchSort = Literal[
    "newest",
    "effective_depth",
    "-effective_depth",
    "last_weight",
    "-last_weight",
    "num_steps",
    "-num_steps",
]


class DepthCell(Schema):
    """Mean weight of the branch steps at one depth in one bucket of iterations."""

    iteration: int = Field(description="First iteration of the bucket")
    depth: int
    mean_weight: Number
    num_steps: int
    share_reachable: Number = Field(default=None, description="Share of weights above 0.5")
    p10_weight: Number = Field(default=None, description="Only with `quantiles`")
    median_weight: Number = None
    p90_weight: Number = None


class DepthBucket(Schema):
    """Marginal of one bucket: how many branches, and the mean of their effective depth.

    `branch_success`: share of won branches; `success`: the policy's own success in training."""

    iteration: int
    num_branches: int
    effective_depth: Number
    branch_success: Number = None
    success: Number = None


class DepthMapResponse(Schema):
    run_id: int
    bucket_iterations: int
    cells: list[DepthCell]
    buckets: list[DepthBucket]


class EvalResultInfo(Schema):
    """`rate` is `num_won / num_episodes`; `low`, `high`: its Wilson interval at 95 %. `num_tasks`
    counts different tasks. `mean_score` is the mean of the dense task scores from 0 to 1, or the
    rate where there are none. `task_type` = `all` is the whole panel."""

    task_type: str
    num_tasks: int
    num_episodes: int
    num_won: int
    rate: Number
    low: Number
    high: Number
    mean_score: Number
    mean_steps: Number


class OutcomeInfo(Schema):
    """One episode. `seed` is null where version 0.1 of the trainer wrote the record."""

    task_id: str
    task_type: str
    seed: int | None
    is_won: bool
    score: Number
    num_steps: int


class EvalConditionsInfo(Schema):
    """What must be equal for two evaluations to be comparable, and which weights were asked."""

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


class EvaluationInfo(Schema):
    """One panel at one iteration. `outcomes` (every episode) only when asked for. `macro_rate` is
    the mean over task types. `macro_rate` and `conditions` are null where version 0.1 of the
    trainer wrote the record."""

    run_id: int
    evaluation_id: str
    job_id: int
    iteration: int
    panel: str
    panel_hash: str
    macro_rate: Number
    conditions: EvalConditionsInfo | None
    created_at: datetime
    results: list[EvalResultInfo]
    outcomes: list[OutcomeInfo] | None = None


class EvaluationsResponse(Schema):
    run_id: int
    evaluations: list[EvaluationInfo]


class CheckpointInfo(Schema):
    run_id: int
    iteration: int
    path: str
    weights_hash: str
    num_bytes: int
    created_at: datetime
    is_on_disk: bool | None = Field(
        default=None, description="Whether the API's machine has its files"
    )


class CheckpointsResponse(Schema):
    run_id: int
    checkpoints: list[CheckpointInfo]


class ConfigDifference(Schema):
    """A config key whose value is not the same in all runs. `values` by run id; a run without the
    key (say, without a `[sero]` section) has no entry."""

    key: str
    values: dict[int, JsonValue]


class CompareResponse(Schema):
    """`evaluations`: the newest one of each run and panel."""

    runs: list[RunSummary]
    config_differences: list[ConfigDifference]
    evaluations: list[EvaluationInfo]
    metric_keys: list[str] = Field(description="Keys that at least one of the runs has")
