"""Estimators: `(groups, values) -> Credits`, pure numpy. A new one is a file and a line here.

The formulas are functions of plain arrays (rewards, labels, keys); a class names the conventions
and calls its function on the groups of an iteration.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from sero_core.credit.dapo import DAPO
from sero_core.credit.dr_grpo import DrGRPO
from sero_core.credit.gigpo import GiGPO
from sero_core.credit.grpo import GRPO
from sero_core.credit.gspo import GSPO
from sero_core.credit.hgpo import HGPO
from sero_core.credit.ppo import PPO
from sero_core.credit.rloo import RLOO

AnyEstimator = GRPO | DrGRPO | DAPO | GSPO | RLOO | PPO | GiGPO | HGPO
ESTIMATORS: tuple[type[AnyEstimator], ...] = get_args(AnyEstimator)
EstimatorConfig = Annotated[AnyEstimator, Field(discriminator="name")]
"""The union of all estimators, told apart by `name`."""
