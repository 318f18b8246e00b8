"""T5: one std convention taken for another. The same rewards give other advantages in other code.

Fixture of docs/correctness.md: rewards [1, 0, 0, 0].
"""

from __future__ import annotations

import json

import pytest

from sero_core.config import RunConfig
from sero_core.credit import ESTIMATORS
from sero_core.types import Group
from tests.support.credit import flat
from tests.support.episodes import group_of

FIXTURE: Group = group_of([1.0, 0.0, 0.0, 0.0], [1, 1, 1, 1])
CONVENTIONS = [
    pytest.param({"name": "grpo"}, 1.5, -0.5, id="verl, OpenRLHF: ddof 1, eps 1e-6"),
    pytest.param({"name": "grpo", "eps": 1e-4}, 1.4997, -0.4999, id="TRL: ddof 1, eps 1e-4"),
    pytest.param({"name": "grpo", "ddof": 0}, 1.73205, -0.57735, id="rLLM, Atropos: ddof 0"),
    pytest.param({"name": "grpo", "normalize_std": False}, 0.75, -0.25, id="prime-rl: no std"),
    pytest.param({"name": "dr_grpo"}, 0.75, -0.25, id="Dr.GRPO"),
    pytest.param({"name": "rloo"}, 1.0, -1 / 3, id="RLOO"),
    pytest.param({"name": "grpo", "std_floor": 1.0}, 0.75, -0.25, id="std floor"),
]


@pytest.mark.parametrize(("options", "high", "low"), CONVENTIONS)
def test_t05_a_named_convention_gives_its_numbers(
    options: dict[str, object], high: float, low: float
) -> None:
    config = RunConfig.model_validate({"estimator": options})
    got = flat(config.estimator([FIXTURE]))
    assert got == pytest.approx([high, low, low, low], abs=5e-5)


@pytest.mark.parametrize(("options", "high", "low"), CONVENTIONS)
def test_t05_the_convention_is_recorded_with_the_run(
    options: dict[str, object], high: float, low: float
) -> None:
    recorded = RunConfig.model_validate({"estimator": options}).model_dump_json()
    says = json.loads(recorded)["estimator"]
    assert {key: says[key] for key in options} == options
    again = RunConfig.model_validate_json(recorded)
    assert flat(again.estimator([FIXTURE])) == pytest.approx([high, low, low, low], abs=5e-5)


def test_t05_every_normalising_estimator_names_ddof_eps_and_statistics() -> None:
    for member in ESTIMATORS:
        if "normalize_std" in member.model_fields:
            assert {"ddof", "eps", "statistics", "singleton"} <= set(member.model_fields)
