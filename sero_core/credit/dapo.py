"""DAPO: GRPO's advantage, asymmetric clipping, dynamic sampling, token mean (arXiv 2503.14476)."""

from __future__ import annotations

from typing import ClassVar, Literal

from sero_core.credit.base import Defaults, GroupEstimator


class DAPO(GroupEstimator):
    """A_i = (R_i - mean_g) / (std_g + eps) (eq. 9), with these settings elsewhere unless told
    otherwise: clip range 0.2 / 0.28 (sec. 3.1), up to 10 rounds of collection until there are
    enough groups whose episodes differ in reward (sec. 3.2, eq. 11), token mean (sec. 3.3).
    Not included: overlong reward shaping (sec. 3.4)."""

    defaults: ClassVar[Defaults] = {
        "loss": {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean"},
        "rollout": {"max_rounds": 10},
    }

    name: Literal["dapo"] = "dapo"
