"""The run configuration: one frozen pydantic model that the TOML file, the submit form, the API's 422
and the trainer share. Each part of a method is a config class of its own (`name` says which); this
module only assembles them and imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sero_core.credit import EstimatorConfig
from sero_core.credit.grpo import GRPO
from sero_core.oracles import OracleConfig
from sero_core.oracles.explorer import ExplorerOracle
from sero_core.types import SeroError

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
TASK_TYPES: tuple[TaskType, ...] = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


class Part(BaseModel):
    """Base of every config section: frozen, and an unknown key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class GeneratedGames(Part):
    """Games of our own generator; the same seed gives the same bytes on every machine."""

    seed: int = Field(default=1, ge=0, description="Seed of the generator")
    difficulty: Literal["small", "normal", "large"] = Field(
        default="small", description="Room size: receptacles and objects per room"
    )
    num_train: int = Field(default=600, ge=1, le=100_000, description="Training games")
    num_valid_seen: int = Field(default=400, ge=1, le=10_000, description="Games in rooms of train")
    num_valid_unseen: int = Field(default=400, ge=1, le=10_000, description="Games in other rooms")


class AlfworldEnv(Part):
    """ALFWorld text games: the official layout under `data_root`, or generated ones."""

    name: Literal["alfworld"] = "alfworld"
    engine: Literal["native", "reference"] = Field(
        default="native", description="native: exact and fast; reference: the stock engine"
    )
    data_root: str = Field(
        default="", description="Folder with json_2.1.1/<split>; empty = generated games"
    )
    games: GeneratedGames = GeneratedGames()
    task_types: tuple[TaskType, ...] = Field(
        default=TASK_TYPES, min_length=1, description="Task types to use"
    )


class PolicyConfig(Part):
    """The model that is trained. `demo` is the policy that ships with the repository."""

    path: str = Field(
        default="demo", description="Folder with config.json, safetensors and tokenizer, or `demo`"
    )
    dtype: Literal["float32", "bfloat16"] = "float32"
    num_threads: int = Field(default=1, ge=1, le=256, description="Torch threads on a CPU")


class PromptConfig(Part):
    """How a state becomes a prompt (docs/prompts.md)."""

    name: Literal["terse", "standard"] = Field(
        default="standard",
        description="standard: the literature's think/action prompt; terse: for tiny models",
    )
    history_length: int = Field(
        default=2, ge=0, le=64, description="Past (observation, action) pairs in the prompt"
    )
    max_prompt_tokens: int = Field(default=2048, ge=64, le=131_072, description="Longest prompt")


class SamplingConfig(Part):
    """Sampling of the policy in training. Log-probabilities are always taken at temperature 1."""

    temperature: float = Field(default=1.0, gt=0, le=5, description="Training temperature")
    max_new_tokens: int = Field(default=512, ge=1, le=8192, description="Longest answer")


class TransformersEngine(Part):
    """Batched generation with a KV cache in the trainer's own process."""

    name: Literal["transformers"] = "transformers"
    batch_size: int = Field(default=64, ge=1, le=4096, description="Prompts per generation batch")


class RolloutConfig(Part):
    """How many episodes one iteration collects."""

    num_tasks: int = Field(default=16, ge=1, le=4096, description="Tasks per iteration")
    group_size: int = Field(default=8, ge=1, le=256, description="Episodes per task")
    max_steps: int = Field(default=50, ge=1, le=500, description="Steps until truncation")
    success_reward: float = Field(default=10.0, gt=0, description="Reward of a won episode")
    invalid_penalty: float = Field(
        default=0.1, ge=0, description="Subtracted on a step whose answer has a wrong format"
    )


class PolicyLoss(Part):
    """Clipped surrogate of the base RL loss (methods: GRPO as in arXiv 2402.03300)."""

    clip_low: float = Field(default=0.2, gt=0, lt=1, description="Lower clip range")
    clip_high: float = Field(default=0.2, gt=0, le=10, description="Upper clip range")
    dual_clip: float = Field(default=3.0, gt=1, description="Bound of the loss for A < 0")
    kl_coef: float = Field(default=0.01, ge=0, description="Weight of k3 to the reference policy")
    entropy_coef: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus")


class OptimizerConfig(Part):
    """AdamW with a constant learning rate."""

    lr: float = Field(default=1e-6, gt=0, le=1, description="Learning rate")
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradient clipping")
    minibatch_rows: int = Field(default=256, ge=1, description="Rows (steps) per optimiser step")
    microbatch_tokens: int = Field(
        default=8192, ge=64, description="Padded tokens per forward-backward pass"
    )


class RootRule(Part):
    """Which visited states become branch roots (methods, section 1.3)."""

    rule: Literal["disagree", "uniform", "failed_only", "first_divergence", "stratified"] = Field(
        default="disagree", description="disagree: steps where the oracle acts differently"
    )
    per_group: int = Field(default=2, ge=1, le=64, description="Branches per task group")
    skip_solved_group: bool = Field(
        default=True, description="No branch where every episode of the group won"
    )


class Reachability(Part):
    """w_0 = 1, w_k = prod_{j<k} exp(beta * ell_j) with ell_j under the frozen behavior policy."""

    rule: Literal["lennorm", "seqprob"] = Field(
        default="lennorm",
        description="lennorm: ell_j is the mean log-probability of the action span; "
        "seqprob: its sum",
    )
    beta: float = Field(default=1.0, ge=0, le=100, description="0 = uniform weights")


class SeroConfig(Part):
    """SERO, arXiv 2610.19397: oracle branches from visited states, and their own loss."""

    oracle: OracleConfig = ExplorerOracle()
    root: RootRule = RootRule()
    horizon: int = Field(default=0, ge=0, le=500, description="Branch steps; 0 = full, 1 = root only")
    max_oracle_steps: int = Field(default=30, ge=1, le=500, description="Hard cap of a branch")
    keep_failed: bool = Field(default=False, description="Train on branches that did not win")
    reachability: Reachability = Reachability()
    normalizer: Literal["sum_weights", "rows"] = Field(
        default="sum_weights", description="Denominator of the oracle loss"
    )
    oracle_coef: float = Field(default=1.0, ge=0, description="Scale of the oracle gradient")
    minibatch_rows: int = Field(default=64, ge=1, description="Rows per oracle optimiser step")
    probe: bool = Field(default=True, description="Log the policy's greedy action on each branch step")


class EvaluationConfig(Part):
    """Fixed panels: the same tasks in the same order with the same sampling seeds, every time."""

    every: int = Field(default=5, ge=0, description="Iterations between evaluations; 0 = only ends")
    panels: tuple[Literal["valid_seen", "valid_unseen"], ...] = ("valid_seen", "valid_unseen")
    num_tasks: int = Field(default=0, ge=0, description="First tasks of each panel; 0 = all")
    num_final_tasks: int = Field(
        default=0, ge=0, description="Tasks of the first and last evaluation; 0 = all"
    )
    temperature: float = Field(default=0.4, ge=0, le=5, description="0 = greedy")
    seed: int = Field(default=1000, ge=0, description="Seed of the evaluation's sampling")


class RunConfig(Part):
    """One experiment. `hash` without `name` and `seed` is the group that seeds are averaged over."""

    name: str = Field(
        default="run", min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$"
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    num_iterations: int = Field(default=150, ge=1, le=100_000, description="Iterations to train")
    checkpoint_every: int = Field(default=5, ge=1, description="Iterations between checkpoints")
    keep_checkpoints: int = Field(default=2, ge=1, le=1000, description="Newest checkpoints kept")
    env: AlfworldEnv = AlfworldEnv()
    policy: PolicyConfig = PolicyConfig()
    prompt: PromptConfig = PromptConfig()
    engine: TransformersEngine = TransformersEngine()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    estimator: EstimatorConfig = GRPO()
    loss: PolicyLoss = PolicyLoss()
    optimizer: OptimizerConfig = OptimizerConfig()
    sero: Annotated[SeroConfig | None, Field(description="Absent = the base RL method alone")] = None
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rollout.group_size < 2 and self.sero is None:
            raise ValueError(
                "rollout.group_size: a group of 1 has advantage 0 and there is no [sero] section, "
                "so nothing would be learnt; allowed: 2 or more, or add [sero]"
            )
        return self

    def group_hash(self) -> str:
        """SHA-256 (16 hex) of everything but name and seed: runs with equal hash differ in seed."""
        data = self.model_dump(mode="json", exclude={"name", "seed"})
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


class ConfigError(SeroError):
    """A config that cannot be used: one line per wrong field, with what is allowed."""


def load_config(path: Path, overrides: tuple[str, ...] = ()) -> RunConfig:
    """Read a TOML config; `overrides` are `dotted.key=value` with TOML values (bare words = strings).

    Errors: `ConfigError` naming the file and every wrong field.
    """
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"config {path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config {path} is not valid TOML: {error}") from None
    for override in overrides:
        _apply(data, override)
    return parse_config(data, str(path))


def parse_config(data: dict[str, Any], origin: str) -> RunConfig:
    """Validate a mapping. Errors: `ConfigError` with one line per wrong field."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = [f"{origin}: {len(error.errors())} wrong field(s)"]
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"]) or "config"
            given = f" (got {item['input']!r})" if not isinstance(item["input"], dict) else ""
            lines.append(f"  {where}: {item['msg']}{given}")
        raise ConfigError("\n".join(lines)) from None


def _apply(data: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator:
        raise ConfigError(f"override {override!r}: expected dotted.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.split(".")
    section = data
    for parent in parents:
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a section")
    section[last] = value
