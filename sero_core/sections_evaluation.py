"""The `[evaluation]` section: protocol, prompting baseline, seeds and sampling.

Apart from `sections.py`, because protocols and baselines build on its classes.
"""

from __future__ import annotations

from pydantic import Field

from sero_core.baselines import BaselineConfig
from sero_core.baselines.zero_shot import ZeroShot
from sero_core.protocols import FixedProtocol, ProtocolConfig
from sero_core.sections import EvaluationSplit, Part


class EvaluationConfig(Part):
    """Evaluation during training and by `sero eval` (docs/evaluation.md)."""

    every: int = Field(default=5, ge=0, description="Iterations between evaluations; 0 = only ends")
    protocol: ProtocolConfig = FixedProtocol()
    baseline: BaselineConfig = ZeroShot()
    panels: tuple[EvaluationSplit, ...] = Field(
        default=(), description="Splits to evaluate; empty = those of the protocol"
    )
    num_tasks: int = Field(
        default=0, ge=0, description="Tasks of each split, evenly spaced; 0 = all"
    )
    temperature: float = Field(default=0.4, ge=0, le=5, description="0 = greedy")
    seeds: tuple[int, ...] = Field(
        default=(1000,),
        min_length=1,
        description="Seeds of draws and sampling; the result is the mean over them",
    )
