"""Estimators: `(Group) -> one array (T_i,) per episode`. A new one is a file and a line here."""

from __future__ import annotations

from sero_core.credit.grpo import GRPO

EstimatorConfig = GRPO
"""The union of all estimators, told apart by `name` (one member so far)."""
