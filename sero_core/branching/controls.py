"""What the oracle loss weighs a branch's steps by, in control studies (docs/methods.md).

A control changes the loss alone: the reachability weights are logged as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from sero_core.sections_sero import DepthSchedule, ShuffledWeights
from sero_core.seeds import derived_random


def loss_weights(
    weights: Sequence[float],
    control: ShuffledWeights | DepthSchedule | None,
    *,
    iteration: int,
    seed: int,
    branch_id: str,
) -> list[float]:
    """Weights of one branch for the loss. None: w_k. `shuffled`: a permutation of them, drawn from
    (seed, branch). `depth_schedule`: 1[k <= K(iteration)]."""
    match control:
        case None:
            return list(weights)
        case ShuffledWeights():
            shuffled = list(weights)
            derived_random(seed, "shuffle", branch_id).shuffle(shuffled)
            return shuffled
        case DepthSchedule():
            deepest = scheduled_depth(control, iteration)
            return [1.0 if depth <= deepest else 0.0 for depth in range(len(weights))]


def scheduled_depth(control: DepthSchedule, iteration: int) -> int:
    """K(iteration), the deepest step that the loss sees; `iteration` counts from 1."""
    return control.first_depth + max(iteration - 1, 0) // control.iterations_per_depth
