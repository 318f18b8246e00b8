"""The `[sero]` section: oracle, roots, thoughts, reachability and the oracle loss (arXiv
2610.19397). Every option and its formula is in docs/methods.md.

Apart from `sections.py`, so that evaluation has no import path to an oracle (a build check).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sero_core.oracles import OracleConfig
from sero_core.oracles.endpoint import ChatEndpoint
from sero_core.oracles.explorer import ExplorerOracle
from sero_core.reachability import WeightRule
from sero_core.sections import Part


class RootRule(Part):
    """Which visited states become branch roots. An episode gives at most one, never its last
    step."""

    rule: Literal[
        "disagree", "uniform", "failed_only", "first_divergence", "stratified", "start"
    ] = Field(
        default="disagree",
        description="disagree: a step where the oracle acts differently; start: only step 0, one "
        "per group (demonstrations)",
    )
    per_group: int = Field(default=2, ge=1, le=64, description="Branches per task group")
    skip_solved_group: bool = Field(
        default=True, description="No branch where every episode of the group won"
    )


class TemplateThought(Part):
    """A fixed short neutral thought; the loss is on the action."""

    name: Literal["template"] = "template"


class PolicyThought(Part):
    """The behavior policy's own thought at the oracle's state, then the oracle's action; the loss
    is on the action."""

    name: Literal["policy"] = "policy"


class TeacherThought(ChatEndpoint):
    """A model's rationale for the oracle's action; the loss is on the whole answer."""

    name: Literal["teacher"] = "teacher"
    max_parallel: int = Field(default=8, ge=1, le=256, description="Requests at a time")


class Reachability(Part):
    """w_0 = 1, w_k = prod_{j<k} c_j, with c_j = (compatibility of oracle action j with the frozen
    behavior policy) ** beta."""

    rule: WeightRule = Field(
        default="lennorm",
        description="lennorm, seqprob: geometric mean or product of the action's token "
        "probabilities; admissible: softmax over the admissible actions; relgreedy: ratio to the "
        "policy's greedy action; sampled: share of the policy's samples",
    )
    beta: float = Field(default=1.0, ge=0, le=100, description="0 = uniform weights")
    tau: float = Field(default=1.0, gt=0, le=100, description="admissible: softmax temperature")
    num_samples: int = Field(default=8, ge=1, le=256, description="sampled: answers per state")
    also_log: tuple[WeightRule, ...] = Field(
        default=(),
        description="More rules whose ingredients are logged, so that stored branches can be "
        "weighted under them without a model",
    )


class ShuffledWeights(Part):
    """Control: the loss takes a branch's weights in random order, so depth means nothing."""

    name: Literal["shuffled"] = "shuffled"


class DepthSchedule(Part):
    """Control: the loss weighs depth k by 1 up to K(iteration), by 0 beyond, whatever the policy
    can do. K(i) = first_depth + (i - 1) // iterations_per_depth."""

    name: Literal["depth_schedule"] = "depth_schedule"
    first_depth: int = Field(default=0, ge=0, description="Deepest step of iteration 1")
    iterations_per_depth: int = Field(
        default=10, ge=1, description="Iterations until one more step counts"
    )


class SeroConfig(Part):
    """SERO, arXiv 2610.19397: oracle branches from visited states, and their own loss."""

    oracle: OracleConfig = ExplorerOracle()
    root: RootRule = RootRule()
    horizon: int = Field(
        default=0, ge=0, le=500, description="Branch steps; 0 = full, 1 = root only"
    )
    max_oracle_steps: int = Field(default=30, ge=1, le=500, description="Hard cap of a branch")
    keep_failed: bool = Field(default=False, description="Train on branches that did not win")
    thought: Annotated[
        TemplateThought | PolicyThought | TeacherThought, Field(discriminator="name")
    ] = TemplateThought()
    reachability: Reachability = Reachability()
    control: Annotated[
        Annotated[ShuffledWeights | DepthSchedule, Field(discriminator="name")] | None,
        Field(description="Weights of the loss in control studies; absent = reachability"),
    ] = None
    normalizer: Literal["sum_weights", "rows"] = Field(
        default="sum_weights", description="Denominator of the oracle loss"
    )
    optimization: Literal["own_step", "own_optimizer", "joint"] = Field(
        default="own_step",
        description="own_step: own steps after the base loss's; own_optimizer: also own moments; "
        "joint: in the base loss's backward passes",
    )
    oracle_coef: float = Field(
        default=1.0, ge=0, description="Scale of the oracle gradient; own_optimizer: only 0 or 1"
    )
    lr_multiplier: float = Field(
        default=1.0, gt=0, le=1000, description="own_optimizer: its learning rate / optimizer.lr"
    )
    minibatch_rows: int = Field(
        default=64, ge=1, description="Rows per oracle optimiser step (not with joint)"
    )
    probe: bool = Field(
        default=True, description="Log the policy's greedy action on each branch step"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.optimization == "own_optimizer" and self.oracle_coef not in (0.0, 1.0):
            raise ValueError(
                "sero.oracle_coef: AdamW's own moments cancel a constant factor, so it has no "
                "effect with own_optimizer, use sero.lr_multiplier; allowed: 0 or 1"
            )
        if self.optimization != "own_optimizer" and self.lr_multiplier != 1.0:
            raise ValueError(
                "sero.lr_multiplier: the oracle rows share the policy's optimizer, use "
                "sero.oracle_coef; allowed: 1, or any with sero.optimization = own_optimizer"
            )
        return self
