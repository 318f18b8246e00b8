"""Config sections that need no oracle: environment, policy, prompt, sampling, rollout, loss.

They live apart from `config.py` so that evaluation has no import path to an oracle (a build check).
Evaluation has a file of its own (`sections_evaluation.py`).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

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


EvaluationSplit = Literal["valid_seen", "valid_unseen", "test"]
"""Splits that environments keep for evaluation; `evaluation_splits` says which has which."""


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

    evaluation_splits: ClassVar[tuple[EvaluationSplit, ...]] = ("valid_seen", "valid_unseen")

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
    num_workers: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Processes that step environments; 0 = the trainer's own. Same records",
    )
    worker_deadline_s: float = Field(
        default=60.0,
        ge=0.1,
        le=3600,
        description="Seconds for one reset or step in a worker; then it is killed and replaced",
    )


class PolicyConfig(Part):
    """The model that is trained. `demo` is the policy that ships with the repository."""

    path: str = Field(
        default="demo", description="Folder with config.json, safetensors and tokenizer, or `demo`"
    )
    dtype: Literal["float32", "bfloat16"] = "float32"
    num_threads: int = Field(default=1, ge=1, le=256, description="Torch threads on a CPU")


class PromptConfig(Part):
    """How a state becomes a prompt (docs/methods.md, Prompts)."""

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
