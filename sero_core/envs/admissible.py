"""Whether an environment acts on a typed action, or leaves everything as it is."""

from __future__ import annotations

from sero_core.envs.webshop import actions as webshop
from sero_core.types import Observation


def is_admissible(env: str, observation: Observation, action: str) -> bool:
    """For most environments: whether the action is listed. WebShop's search takes any text, which
    no list can hold, and its clicks ignore case.
    """
    if env == "webshop":
        return webshop.is_admissible(observation, action)
    return action in observation.admissible
