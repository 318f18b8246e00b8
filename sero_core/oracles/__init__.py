"""Oracles: they act in the environment from any state a policy reached, in training only.

A config class is the oracle's entry in a run's TOML; calling it makes the oracle. A new one is a
file and a line here; `envs` says which environments it plays.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sero_core.oracles.explorer import ExplorerOracle
from sero_core.oracles.handcoded import HandcodedOracle
from sero_core.oracles.llm import LLMOracle
from sero_core.oracles.planner import PlannerOracle
from sero_core.oracles.webshop import WebShopOracle

OracleConfig = Annotated[
    PlannerOracle | ExplorerOracle | HandcodedOracle | LLMOracle | WebShopOracle,
    Field(discriminator="name"),
]
"""The union of all oracles, told apart by `name`."""
ORACLE_ENVS: dict[str, tuple[str, ...]] = {
    str(part.model_fields["name"].default): part.envs
    for part in (PlannerOracle, ExplorerOracle, HandcodedOracle, LLMOracle, WebShopOracle)
}
"""The environments that each oracle plays."""


def default_oracle(env: str) -> ExplorerOracle | WebShopOracle:
    """The one that needs nothing installed and wins almost always."""
    return WebShopOracle() if env == "webshop" else ExplorerOracle()


__all__ = [
    "ORACLE_ENVS",
    "ExplorerOracle",
    "HandcodedOracle",
    "LLMOracle",
    "OracleConfig",
    "PlannerOracle",
    "WebShopOracle",
    "default_oracle",
]
