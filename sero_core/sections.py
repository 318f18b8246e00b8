"""Config sections that need no oracle: environment, policy, prompt, sampling, rollout, loss.

They live apart from `config.py` so that evaluation has no import path to an oracle (a build check).
Evaluation has a file of its own (`sections_evaluation.py`).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

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

Aggregation = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
KLEstimator = Literal["k1", "k2", "k3", "abs", "k1+", "k3+"]
RejectionRule = Literal[
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
]


EvaluationSplit = Literal["valid_seen", "valid_unseen", "test", "eval"]
"""Splits that environments keep for evaluation: `evaluation_splits` are those that protocols
evaluate, `other_splits` can be named in `evaluation.panels`."""


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
    other_splits: ClassVar[tuple[EvaluationSplit, ...]] = ()

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


class LoraConfig(Part):
    """Low-rank adapters instead of full fine-tuning (arXiv 2106.09685). There is no dropout: the
    policy that samples and the one that is trained must be the same function."""

    rank: int = Field(default=0, ge=0, le=1024, description="0 = full fine-tuning")
    alpha: int = Field(default=32, ge=1, description="Adapters are scaled by alpha / rank")
    target_modules: str = Field(
        default="all-linear",
        pattern=r"^\w[\w.-]*(, ?\w[\w.]*)*$",
        description="Names of linear layers, by commas; all-linear = all but the output projection",
    )


class PolicyConfig(Part):
    """The model that is trained. `demo` is the policy that ships with the repository."""

    path: str = Field(
        default="demo", description="Folder with config.json, safetensors and tokenizer, or `demo`"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of the forward pass; weights, softmax and optimiser are float32",
    )
    num_threads: int = Field(default=1, ge=1, le=256, description="Torch threads on a CPU")
    lora: LoraConfig = LoraConfig()
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute layers in the backward pass: less memory, slower"
    )
    train_attention: Literal["sdpa", "flex_attention", "flash_attention_2"] = Field(
        default="sdpa",
        description="Attention of the trainer's passes; the last two skip the blocks between "
        "packed rows (flash_attention_2 needs the flash-attn package and bfloat16)",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train_attention == "flash_attention_2" and self.dtype != "bfloat16":
            raise ValueError(
                f"train_attention flash_attention_2 with dtype {self.dtype}, allowed: bfloat16"
            )
        return self


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
    max_rounds: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Rounds of collection until num_tasks groups differ in reward; 1 = keep all",
    )


class EngineCorrection(Part):
    """Weights and rejection for tokens on which engine and trainer disagree, rho = pi_old / mu
    (docs/losses.md). Needs `loss.old_logprobs = "recompute"`."""

    weights: Literal["none", "token", "sequence"] = Field(
        default="none", description="Multiply the surrogate by rho of the token or of the answer"
    )
    cap: float = Field(default=2.0, gt=0, description="Weights are truncated here")
    floor: float = Field(
        default=0.0, ge=0, description="More than 0: weights outside [floor, cap] become 0 (IcePop)"
    )
    normalize: bool = Field(default=False, description="Divide the weights by their mean")
    reject: Literal["none", RejectionRule] = Field(
        default="none", description="Drop tokens or answers by an estimate of the divergence"
    )
    reject_above: float = Field(default=2.0, gt=0, description="Largest estimate that is kept")
    reject_below: float = Field(
        default=0.0, ge=0, description="Smallest, for k1 rules; 0 = 1 / reject_above"
    )

    @property
    def is_on(self) -> bool:
        return self.weights != "none" or self.reject != "none"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.floor > self.cap:
            raise ValueError(f"floor is {self.floor}, allowed: at most cap, which is {self.cap}")
        if self.reject_below and not self.reject.endswith("k1"):
            raise ValueError(
                f"reject_below is {self.reject_below}, allowed: 0, since {self.reject} has no "
                "lower bound (k1 rules have one)"
            )
        return self


class PolicyLoss(Part):
    """The base RL loss: clipped surrogate, KL to the initial policy, entropy (docs/losses.md)."""

    ratio: Literal["token", "sequence"] = Field(
        default="token", description="Importance ratio per token (PPO, GRPO) or per answer (GSPO)"
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="Lower clip range")
    clip_high: float = Field(default=0.2, gt=0, le=10, description="Upper clip range")
    dual_clip: float = Field(
        default=3.0, ge=0, description="Bound of the loss for A < 0, more than 1; 0 = none"
    )
    log_ratio: Literal["clamped", "unclamped"] = Field(
        default="clamped",
        description="clamped: log ratios within +-20, of answers at most 10, k3 at most 10 (verl); "
        "unclamped: no bound (TRL)",
    )
    aggregation: Aggregation = Field(
        default="token-mean", description="How token losses become one number"
    )
    norm_length: int = Field(
        default=0, ge=0, description="Constant divisor of seq-mean-token-sum-norm, in tokens"
    )
    kl_coef: float = Field(default=0.01, ge=0, description="Weight of the KL to the initial policy")
    kl_estimator: KLEstimator = Field(
        default="k3", description="k1+ and k3+: value of k1 or k3, gradient of k2"
    )
    kl_in: Literal["loss", "reward"] = Field(
        default="loss", description="A term of the loss, or taken off each step's reward"
    )
    entropy_coef: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus")
    old_logprobs: Literal["engine", "recompute"] = Field(
        default="engine",
        description="Denominator of the ratio: what the engine reported, or the trainer's own "
        "forward pass before the update",
    )
    correction: EngineCorrection = EngineCorrection()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip is {self.dual_clip}, allowed: more than 1, or 0 for none")
        if (self.aggregation == "seq-mean-token-sum-norm") != (self.norm_length > 0):
            raise ValueError(
                f"norm_length is {self.norm_length} with aggregation {self.aggregation}, allowed: "
                "1 or more with seq-mean-token-sum-norm, 0 with the others"
            )
        if self.correction.is_on and self.old_logprobs == "engine":
            raise ValueError(
                'correction: there is nothing to correct while old_logprobs = "engine"; '
                'allowed: old_logprobs = "recompute"'
            )
        return self


class OptimizerConfig(Part):
    """AdamW, its learning rate, and how an iteration's rows become optimiser steps."""

    lr: float = Field(default=1e-6, gt=0, le=1, description="Learning rate")
    warmup_steps: int = Field(
        default=0, ge=0, description="Optimiser steps of linear warm-up; then constant"
    )
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradient clipping")
    num_epochs: int = Field(
        default=1, ge=1, le=100, description="Passes over the rows of an iteration"
    )
    minibatch_rows: int = Field(
        default=256, ge=1, description="Rows (steps) per optimiser step, of all ranks together"
    )
    microbatch_tokens: int = Field(
        default=8192, ge=64, description="Tokens per forward-backward pass, padding included"
    )
    layout: Literal["auto", "bucketed", "packed"] = Field(
        default="auto",
        description="bucketed: rows of similar length, padded; packed: rows behind each other; "
        "auto: packed on a GPU",
    )
    head_tokens: int = Field(
        default=512, ge=1, description="Tokens whose logits over the vocabulary exist at once"
    )
