"""GRPO: group-relative advantages (arXiv 2402.03300, outcome supervision)."""

from __future__ import annotations

from typing import Literal

from sero_core.credit.base import GroupEstimator


class GRPO(GroupEstimator):
    """A_i = (R_i - mean_g) / (std_g + eps), the same value on every step of episode i.

    The formula and its named conventions are `credit.statistics.group_advantages`.
    """

    name: Literal["grpo"] = "grpo"
