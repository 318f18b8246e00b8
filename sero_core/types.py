"""The plain data that flows through one training iteration (docs/architecture.md, section 2).

Every class is a frozen dataclass: no line of the loop mutates an earlier value. Policy rows and
oracle rows are different classes on purpose, so that an oracle row can never enter a group mean, a
success rate or the denominator of the base RL loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from sero_core.types_evaluation import Evaluation

BranchOutcome = Literal["won", "horizon", "dead_end", "budget", "oracle_error", "restore_mismatch"]
"""How a branch ended. `won`: the oracle reached the goal. `horizon`: cut on purpose after
`sero.horizon` steps. `dead_end`: no action sequence reaches the goal from here. `budget`: the step
limit was hit first. `oracle_error`: the oracle gave up or proposed an inadmissible action.
`restore_mismatch`: the restored state was not the recorded one; nothing was executed."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem instance: a game file, a shopping goal.

    `task_id` is stable across machines (for ALFWorld `<split>/<game folder>/<trial folder>`),
    `path` is where this machine keeps it, `content_hash` is the SHA-256 of the file's bytes.
    """

    task_id: str
    env: str
    split: str
    task_type: str
    path: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What an environment shows: the text, the admissible actions in engine order, and the end.

    `score` is how much of the task is done, from 0 to 1, where the environment grades it (WebShop
    when something is bought); None where only won or not is known.
    """

    text: str
    admissible: tuple[str, ...]
    is_won: bool = False
    is_terminated: bool = False
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Identity of a reached state. JSON is `task_id`, `actions`, `state_hash`.

    `actions` are the executed actions since reset; replaying them always reproduces the state, in
    any process. `handle` is an in-process shortcut (the native engine's immutable state) and is
    never serialised or compared. `state_hash` covers observation, admissible actions and facts;
    every restore recomputes it and raises `RestoreMismatch` when it differs.
    """

    task_id: str
    actions: tuple[str, ...]
    state_hash: str
    handle: object | None = field(default=None, compare=False, repr=False)


class SeroError(Exception):
    """Base of the errors that sero_core raises on purpose."""


class RestoreMismatch(SeroError):
    """The restored state is not the recorded one."""


class OracleError(SeroError):
    """The oracle cannot go on. `reason` is shown to the user."""

    outcome: BranchOutcome = "oracle_error"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DeadEnd(OracleError):
    """The goal can no longer be reached from this state; `reason` says why."""

    outcome: BranchOutcome = "dead_end"


class Environment(Protocol):
    """One live episode. Reuse the object: `reset` starts the next episode.

    Errors: an action is any string; an inadmissible one is a normal step ("Nothing happens.").
    """

    def reset(self, task: Task) -> Observation: ...

    def step(self, action: str) -> Observation: ...

    def snapshot(self) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> Observation: ...

    def facts(self) -> frozenset[tuple[str, ...]]:
        """Every true fact, as (predicate, argument, ...). Privileged: for oracles and hashes
        only.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PrefixStep:
    """One step of the policy before the root: what it saw and the action that was executed."""

    observation: Observation
    action: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """What an oracle may know when it starts: the episode so far, and the restored environment.

    An unprivileged oracle reads only `task_text`, `steps` and `observation`.
    """

    task: Task
    steps: tuple[PrefixStep, ...]
    observation: Observation
    env: Environment


class Oracle(Protocol):
    """Acts in the real environment from any visited state. Training only."""

    def start(self, prefix: Prefix) -> None: ...

    def act(self, observation: Observation) -> str:
        """The next action. Raises `DeadEnd` or `OracleError`, never returns an empty string."""
        ...


@runtime_checkable
class NotingOracle(Protocol):
    """An oracle that says in a few words what its plan rests on; a branch keeps it as reason."""

    @property
    def note(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine sampled. `token_ids` include the end-of-turn token when it was sampled.

    `logprobs` are natural logs under the sampling distribution softmax(logits / temperature) over
    the full vocabulary, one per token id (temperature 1 where sampling was greedy).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One environment turn of the policy. `snapshot` is the state in which the action was taken.

    `reward` is what the step earned minus `format_penalty` (>= 0; 0 for an answer in the right
    format). Estimators need the two apart: conventions differ in where the penalty counts.
    """

    index: int
    observation: Observation
    prompt_ids: tuple[int, ...]
    completion: Completion
    action: str
    is_valid: bool
    is_admissible: bool
    reward: float
    snapshot: Snapshot
    format_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """The steps from reset to the end. `final_observation` follows the last action."""

    episode_id: str
    task: Task
    index: int
    steps: tuple[Step, ...]
    final_observation: Observation
    is_won: bool
    is_truncated: bool

    @property
    def reward(self) -> float:
        return sum(step.reward for step in self.steps)

    @property
    def score(self) -> float:
        """The dense task score from 0 to 1 (logged, never trained on); 1 or 0 where the
        environment knows only won or not.
        """
        score = self.final_observation.score
        return float(self.is_won) if score is None else score


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task that are compared with each other.

    `num_lost` counts members whose environment worker died; they are not in `episodes`.
    """

    task: Task
    episodes: tuple[Episode, ...]
    num_lost: int = 0

    def __post_init__(self) -> None:
        """Errors: `SeroError` naming an episode of another task or another version of it."""
        for episode in self.episodes:
            got = (episode.task.task_id, episode.task.content_hash)
            if got != (self.task.task_id, self.task.content_hash):
                raise SeroError(
                    f"episode {episode.episode_id} is of task {got[0]} ({got[1][:12]}), its group "
                    f"of task {self.task.task_id} ({self.task.content_hash[:12]})"
                )


@dataclass(frozen=True, slots=True)
class BranchStep:
    """Depth k of an oracle branch.

    `token_ids` render the oracle action in the policy's own answer format; `logprobs` are the
    frozen behavior policy's, one per token. `scored` marks the action span: the tokens that enter
    the compatibility c_k (`reachability.py`, with `action_logprob_mean` and `_sum` of the span);
    `weight` is w_k = prod_{j<k} c_j, so it never contains c_k itself. `policy_action` is the action
    the policy really took at this episode step (None past its end); `probe_action` is what the
    policy would do greedily in the oracle's state.

    `thought` says where the text before the action came from (None in logs of version 0.1).
    `loss_mask` marks the tokens of the oracle loss (None: `scored`), `loss_weight` is the weight
    that it uses (None: `weight`; another one only in control studies). The rest are ingredients of
    single weight rules, None where they were not asked for (`reachability.StepIngredients`).
    """

    depth: int
    observation: Observation
    action: str
    prompt: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    scored: tuple[bool, ...]
    action_logprob_mean: float
    action_logprob_sum: float
    compatibility: float
    weight: float
    policy_action: str | None
    probe_action: str | None
    reward: float
    state_hash: str
    thought: str | None = None
    loss_mask: tuple[bool, ...] | None = None
    loss_weight: float | None = None
    greedy_logprob_mean: float | None = None
    admissible_logprobs: tuple[float, ...] | None = None
    admissible_index: int | None = None
    num_samples: int | None = None
    num_matches: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """An oracle continuation from `root_index` of a policy episode, with the proof of its
    restore.

    `root_rule` is what drew the root; `weight_rule`, `beta` and `tau` are those of its weights;
    `control` names the control study whose weights the loss uses (None: reachability).
    """

    branch_id: str
    episode_id: str
    task: Task
    root_index: int
    root_rule: str
    oracle: str
    outcome: BranchOutcome
    reason: str
    root_hash: str
    restored_hash: str
    weight_rule: str
    beta: float
    is_trained: bool
    steps: tuple[BranchStep, ...]
    final_observation: Observation | None
    tau: float = 1.0
    control: str | None = None
    is_episode_won: bool | None = None

    @property
    def effective_depth(self) -> float:
        return sum(step.weight for step in self.steps)


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint that is complete on disk. `weights_hash` is the SHA-256 of the safetensors
    file.
    """

    iteration: int
    path: str
    weights_hash: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Rescore:
    """A stored branch under another policy, whose safetensors file has the SHA-256 `weights_hash`;
    values by depth."""

    branch_id: str
    weights_hash: str
    weights: tuple[float, ...]
    compatibilities: tuple[float, ...]
    logprob_means: tuple[float, ...]

    @property
    def effective_depth(self) -> float:
        return sum(self.weights)


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """Everything one iteration produced; what every sink receives.

    Iteration 0 is the evaluation before the first update (no groups, no branches).
    """

    iteration: int
    metrics: dict[str, float]
    groups: tuple[Group, ...]
    branches: tuple[Branch, ...]
    evaluations: tuple[Evaluation, ...]
    checkpoint: CheckpointRecord | None
    rescores: tuple[Rescore, ...] = ()


class Sink(Protocol):
    """Receives records in order. `write` returns only when the record is durable."""

    def write(self, record: IterationRecord) -> None: ...

    def close(self) -> None: ...
