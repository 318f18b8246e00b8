"""The `[sero]` section: oracle, roots, reachability and the oracle loss (arXiv 2610.19397).

Apart from `sections.py`, so that evaluation has no import path to an oracle (a build check).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sero_core.oracles import OracleConfig
from sero_core.oracles.explorer import ExplorerOracle
from sero_core.sections import Part


class RootRule(Part):
    """Which visited states become branch roots (docs/methods.md, Choices)."""

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
    horizon: int = Field(
        default=0, ge=0, le=500, description="Branch steps; 0 = full, 1 = root only"
    )
    max_oracle_steps: int = Field(default=30, ge=1, le=500, description="Hard cap of a branch")
    keep_failed: bool = Field(default=False, description="Train on branches that did not win")
    reachability: Reachability = Reachability()
    normalizer: Literal["sum_weights", "rows"] = Field(
        default="sum_weights", description="Denominator of the oracle loss"
    )
    oracle_coef: float = Field(default=1.0, ge=0, description="Scale of the oracle gradient")
    minibatch_rows: int = Field(default=64, ge=1, description="Rows per oracle optimiser step")
    probe: bool = Field(
        default=True, description="Log the policy's greedy action on each branch step"
    )
