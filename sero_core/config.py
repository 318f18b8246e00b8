"""The run configuration: one frozen pydantic model that the TOML file, the submit form, the API's
422 and the trainer share. Each part of a method is a config class of its own (`name` says which);
this module only assembles them and imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from sero_core.credit import EstimatorConfig
from sero_core.credit.grpo import GRPO
from sero_core.oracles import ORACLE_ENVS
from sero_core.protocol import Protocol, fill_defaults
from sero_core.sections import (
    TASK_TYPES,
    AlfworldEnv,
    GeneratedGames,
    OptimizerConfig,
    Part,
    PolicyConfig,
    PolicyLoss,
    PromptConfig,
    RolloutConfig,
    SamplingConfig,
    TaskType,
    TransformersEngine,
)
from sero_core.sections_evaluation import EvaluationConfig
from sero_core.sections_sero import Reachability, RootRule, SeroConfig
from sero_core.sections_webshop import EnvConfig, GeneratedCatalogue, WebShopEnv
from sero_core.types import SeroError

__all__ = [
    "TASK_TYPES",
    "AlfworldEnv",
    "ConfigError",
    "EnvConfig",
    "EvaluationConfig",
    "GeneratedCatalogue",
    "GeneratedGames",
    "OptimizerConfig",
    "Part",
    "PolicyConfig",
    "PolicyLoss",
    "PromptConfig",
    "Reachability",
    "RolloutConfig",
    "RootRule",
    "RunConfig",
    "SamplingConfig",
    "SeroConfig",
    "TaskType",
    "TransformersEngine",
    "WebShopEnv",
    "apply_override",
    "load_config",
    "parse_config",
]


_NOT_THE_GROUP = ("name", "seed")


class RunConfig(Part):
    """One experiment. `hash` without `name` and `seed` is the group that seeds are averaged
    over.
    """

    name: str = Field(
        default="run", min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$"
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    protocol: Protocol = Field(
        default="default",
        description="verl-agent: fields left out take the setting of the published numbers",
    )
    num_iterations: int = Field(default=150, ge=1, le=100_000, description="Iterations to train")
    checkpoint_every: int = Field(default=5, ge=1, description="Iterations between checkpoints")
    keep_checkpoints: int = Field(default=2, ge=1, le=1000, description="Newest checkpoints kept")
    env: EnvConfig = AlfworldEnv()
    policy: PolicyConfig = PolicyConfig()
    prompt: PromptConfig = PromptConfig()
    engine: TransformersEngine = TransformersEngine()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    estimator: EstimatorConfig = GRPO()
    loss: PolicyLoss = PolicyLoss()
    optimizer: OptimizerConfig = OptimizerConfig()
    sero: Annotated[SeroConfig | None, Field(description="Absent = the base RL method alone")] = (
        None
    )
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: object) -> object:
        return fill_defaults(cast("dict[str, object]", data)) if isinstance(data, dict) else data

    @field_validator("env", mode="before")
    @classmethod
    def _name_env(cls, value: object) -> object:
        """A section without a name is ALFWorld's, as in logs of version 0.1."""
        return {"name": "alfworld", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rollout.group_size < self.estimator.min_group_size and self.sero is None:
            raise ValueError(
                "rollout.group_size: a group of 1 has advantage 0 and there is no [sero] section, "
                "so nothing would be learnt; allowed: 2 or more, or add [sero]"
            )
        if self.rollout.group_size == 1 and self.rollout.max_rounds > 1:
            raise ValueError(
                f"rollout.max_rounds: {self.rollout.max_rounds} rounds look for groups whose "
                "episodes differ, which a group of 1 never does; allowed: 1, or group_size >= 2"
            )
        splits = self.env.evaluation_splits + self.env.other_splits
        if unknown := sorted(set(self.evaluation.panels) - set(splits)):
            raise ValueError(
                f"evaluation.panels: {self.env.name} has no split {', '.join(unknown)} to evaluate"
                f"; allowed: {', '.join(splits)}"
            )
        if self.sero is not None and self.env.name not in self.sero.oracle.envs:
            fitting = [name for name, envs in ORACLE_ENVS.items() if self.env.name in envs]
            raise ValueError(
                f"sero.oracle.name: {self.sero.oracle.name} does not play {self.env.name}; "
                f"allowed: {', '.join(fitting)}"
            )
        thought = "template" if self.sero is None else self.sero.thought.name
        if thought != "template" and self.prompt.name == "terse":
            raise ValueError(
                f"sero.thought.name: {thought}, but answers of the terse prompt have no thought; "
                "allowed: template, or prompt.name = standard"
            )
        return self

    def group_hash(self) -> str:
        """SHA-256 (16 hex) of all that decides the records but the seed: runs with equal hash
        differ in seed, name and the number of workers only.
        """
        return self._hash(*_NOT_THE_GROUP)

    def trajectory_hash(self) -> str:
        """As `group_hash`, and without what only says how far to train and what to keep: a
        checkpoint may be continued by a config with the same one and the same seed.
        """
        return self._hash(*_NOT_THE_GROUP, "num_iterations", "checkpoint_every", "keep_checkpoints")

    def _hash(self, *excluded: str) -> str:
        data = self.model_dump(
            mode="json",
            exclude=dict.fromkeys(excluded, True) | {"env": {"num_workers", "worker_deadline_s"}},
        )
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


class ConfigError(SeroError):
    """A config that cannot be used: one line per wrong field, with what is allowed."""


def load_config(path: Path, overrides: tuple[str, ...] = ()) -> RunConfig:
    """Read a TOML config; `overrides` are `dotted.key=value` with TOML values (bare words =
    strings).

    Errors: `ConfigError` naming the file and every wrong field.
    """
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"config {path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config {path} is not valid TOML: {error}") from None
    for override in overrides:
        apply_override(data, override)
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


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set `dotted.key=value` in a nested mapping; values are TOML, bare words are strings.

    Errors: `ConfigError` naming the override.
    """
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
