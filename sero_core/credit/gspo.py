"""GSPO: GRPO's advantage under a sequence-level importance ratio (arXiv 2507.18071)."""

from __future__ import annotations

from typing import ClassVar, Literal

from sero_core.credit.base import Defaults, GroupEstimator


class GSPO(GroupEstimator):
    """A_i = (R_i - mean_g) / (std_g + eps) (eq. 6). What makes it GSPO is in the loss: the ratio is
    the geometric mean over the answer's tokens (eq. 7), clipped to 1 - 3e-4, 1 + 4e-4, and answers
    are averaged, not tokens (eq. 5). A sequence is one step's answer."""

    defaults: ClassVar[Defaults] = {
        "loss": {
            "ratio": "sequence",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "aggregation": "seq-mean-token-mean",
        }
    }

    name: Literal["gspo"] = "gspo"
