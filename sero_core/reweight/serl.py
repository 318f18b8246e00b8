"""SERL's sign-aware token weights (arXiv 2605.19447; constants of its released code).

    g = clamp(sign(A) (log pi_T - log pi), -20, 20),   w = clip(exp(g), 1 - c, 1 + c)
    A~ = A (1 + m lambda (w - 1)),   lambda = lambda_0 max(0, 1 - step / decay_steps)

A token that the teacher (the same model with privileged context) likes better than the student gets
a larger advantage when A > 0 and a smaller penalty when A < 0. Only tokens of the action span in
rows with a teacher context are weighted (m); every other token keeps its advantage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_GAP = 20.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reweighted:
    """`advantages_BL` are 0 outside of the response. The statistics are over the selected tokens
    before blending; 1 (shares: 0) where none is selected. `selected_fraction` is the share of the
    response tokens in rows with a teacher context."""

    advantages_BL: Floats
    mixing: float
    weight_mean: float
    weight_min: float
    weight_max: float
    selected_fraction: float
    clipped_fraction: float


def mixing_at(mixing: float, decay_steps: int, step: int) -> float:
    """lambda after `step` finished updates; `decay_steps` 0 = no decay."""
    return mixing * max(0.0, 1.0 - step / decay_steps) if decay_steps else mixing


def sign_aware_weights(
    advantages_BL: Floats,
    student_BL: Floats,
    teacher_BL: Floats,
    response_BL: NDArray[np.bool_],
    action_BL: NDArray[np.bool_],
    has_context_B: NDArray[np.bool_] | None = None,
    *,
    mixing: float,
    weight_clip: float,
) -> Reweighted:
    """Reweight the advantages of action tokens.

    Args:
        advantages_BL: the base estimator's, broadcast to tokens.
        student_BL, teacher_BL: natural logs of the sampled tokens under the student (which one,
            current or behavior policy, is the caller's choice) and the teacher.
        response_BL: the tokens that are trained on.
        action_BL: the action span.
        has_context_B: rows for which the teacher had a privileged text; None = all.
        mixing: lambda now (`mixing_at`).
        weight_clip: c.

    Errors: ValueError naming the array whose shape differs.
    """
    arrays = {
        "student_BL": student_BL,
        "teacher_BL": teacher_BL,
        "response_BL": response_BL,
        "action_BL": action_BL,
    }
    for name, array in arrays.items():
        if array.shape != advantages_BL.shape:
            raise ValueError(f"{name} has shape {array.shape}, expected {advantages_BL.shape}")
    eligible_BL = response_BL if has_context_B is None else response_BL & has_context_B[:, None]
    selected_BL = eligible_BL & action_BL
    gap_BL = np.sign(advantages_BL) * (teacher_BL - student_BL)
    raw_BL = np.exp(np.clip(gap_BL, -MAX_GAP, MAX_GAP))
    weight_BL = np.clip(raw_BL, 1.0 - weight_clip, 1.0 + weight_clip)
    blended_BL = 1.0 + selected_BL * mixing * (weight_BL - 1.0)
    chosen, num_eligible = weight_BL[selected_BL], int(eligible_BL.sum())
    is_clipped = (chosen <= 1.0 - weight_clip) | (chosen >= 1.0 + weight_clip)
    return Reweighted(
        advantages_BL=advantages_BL * blended_BL * response_BL,
        mixing=mixing,
        weight_mean=float(chosen.mean()) if chosen.size else 1.0,
        weight_min=float(chosen.min()) if chosen.size else 1.0,
        weight_max=float(chosen.max()) if chosen.size else 1.0,
        selected_fraction=chosen.size / num_eligible if num_eligible else 0.0,
        clipped_fraction=float(is_clipped.mean()) if chosen.size else 0.0,
    )
