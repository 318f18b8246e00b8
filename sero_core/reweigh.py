"""Weights of stored branches under another rule, from the logged ingredients, without a model.

    weights = reweigh(branch, rule="seqprob", beta=0.5)

`branch` is one of a run's log, or of the API: anything with `branch_id` and steps that hold the
ingredients. Which rules a log can answer is said in docs/methods.md (Weights).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from sero_core.reachability import (
    MissingIngredient,
    StepIngredients,
    StepWeight,
    WeightRule,
    reachability_weights,
)
from sero_core.records import BranchPayload, IterationPayload

MAX_SHOWN_DEPTHS = 10


class StoredBranch(Protocol):
    """What weighting a branch again needs of it."""

    @property
    def branch_id(self) -> str: ...
    @property
    def steps(self) -> Sequence[StepIngredients]: ...


@dataclass(frozen=True, slots=True)
class IterationWeights:
    """The branches of one iteration with at least one step: mean effective depth as stored and
    under the new rule, and the new mean weight by depth."""

    iteration: int
    num_branches: int
    stored_depth: float
    new_depth: float
    mean_weights: tuple[float, ...]


def reweigh(
    branch: StoredBranch, *, rule: WeightRule, beta: float, tau: float = 1.0
) -> list[StepWeight]:
    """The weights of one branch, root first. Errors: `MissingIngredient` naming branch, step and
    what was not logged."""
    try:
        return reachability_weights(branch.steps, rule=rule, beta=beta, tau=tau)
    except MissingIngredient as error:
        raise MissingIngredient(f"branch {branch.branch_id}, {error}") from None


def reweigh_run(
    records: Iterable[IterationPayload], *, rule: WeightRule, beta: float, tau: float = 1.0
) -> list[IterationWeights]:
    """Every iteration that has branches, in order. Errors: `MissingIngredient`."""
    found: list[IterationWeights] = []
    for record in records:
        branches = [branch for branch in record.branches if branch.steps]
        if not branches:
            continue
        new = [reweigh(branch, rule=rule, beta=beta, tau=tau) for branch in branches]
        by_depth: defaultdict[int, list[float]] = defaultdict(list)
        for weights in new:
            for depth, step in enumerate(weights):
                by_depth[depth].append(step.weight)
        found.append(
            IterationWeights(
                iteration=record.iteration,
                num_branches=len(branches),
                stored_depth=fmean(branch.effective_depth for branch in branches),
                new_depth=fmean(sum(step.weight for step in weights) for weights in new),
                mean_weights=tuple(fmean(by_depth[depth]) for depth in sorted(by_depth)),
            )
        )
    return found


def run_table(found: Sequence[IterationWeights]) -> list[str]:
    """Effective depth as stored and now, and the mean weight at each depth: a line an iteration."""
    depths = min(max((len(row.mean_weights) for row in found), default=0), MAX_SHOWN_DEPTHS)
    head = "iteration branches  depth stored  depth now  " + "".join(
        f"{f'w_{depth}':>7}" for depth in range(depths)
    )
    return [
        head,
        *(
            f"{row.iteration:>9} {row.num_branches:>8}  {row.stored_depth:>12.2f}  "
            f"{row.new_depth:>9.2f}  "
            + "".join(f"{weight:>7.3f}" for weight in row.mean_weights[:depths])
            for row in found
        ),
    ]


def branch_table(branch: BranchPayload, weights: Sequence[StepWeight]) -> list[str]:
    """One branch: compatibility and weight of each step, as stored and now."""
    lines = [
        f"branch {branch.branch_id} ({branch.task.task_id}), root step {branch.root_index}, "
        f"{branch.outcome}; stored: {branch.weight_rule}, beta {branch.beta:g}",
        " k   c stored  w stored     c now     w now  action",
    ]
    lines += [
        f"{step.depth:>2} {step.compatibility:>10.4f} {step.weight:>9.4f} "
        f"{new.compatibility:>9.4f} {new.weight:>9.4f}  {step.action}"
        for step, new in zip(branch.steps, weights, strict=True)
    ]
    return lines
