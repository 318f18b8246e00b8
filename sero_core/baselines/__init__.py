"""How a policy plays at evaluation: the training prompt alone, or a prompting method around it.

Nothing is trained here and no oracle is reachable from here (a build check): worked examples come
from files that `scripts/make_demonstrations.py` made.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sero_core.baselines.react import ReAct
from sero_core.baselines.reflexion import Reflexion
from sero_core.baselines.zero_shot import ZeroShot

BaselineConfig = Annotated[ZeroShot | ReAct | Reflexion, Field(discriminator="name")]
"""The union of all baselines, told apart by `name`."""

__all__ = ["BaselineConfig", "ReAct", "Reflexion", "ZeroShot"]
