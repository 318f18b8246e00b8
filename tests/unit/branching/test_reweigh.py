"""Stored branches under another rule: the same numbers as at the time, or what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from sero_core.cli import app
from sero_core.reachability import MissingIngredient, WeightRule, reachability_weights
from sero_core.records import from_line, to_line, to_payload
from sero_core.reweigh import reweigh, reweigh_run
from sero_core.sinks.jsonl import JsonlSink
from sero_core.types import Branch, BranchStep, IterationRecord
from tests.support.records import iteration_record

RULES: tuple[WeightRule, ...] = get_args(WeightRule)


def with_ingredients(step: BranchStep) -> BranchStep:
    return replace(
        step,
        greedy_logprob_mean=-0.1 * (step.depth + 1),
        admissible_logprobs=(-1.0, -2.0 - step.depth, -3.0),
        admissible_index=step.depth % 3,
        num_samples=8,
        num_matches=step.depth,
    )


def record(iteration: int) -> IterationRecord:
    """Branches with everything that any rule reads."""
    made = iteration_record(iteration)
    branches = tuple(
        replace(branch, steps=tuple(with_ingredients(step) for step in branch.steps))
        for branch in made.branches
    )
    return replace(made, branches=branches)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_a_stored_branch_has_the_weights_it_would_have_had(rule: WeightRule, beta: float) -> None:
    live: tuple[Branch, ...] = record(1).branches
    stored = from_line(to_line(record(1))).branches
    assert sum(len(branch.steps) for branch in stored) > 6
    for old, branch in zip(live, stored, strict=True):
        expected = reachability_weights(old.steps, rule=rule, beta=beta, tau=2.0)
        assert reweigh(branch, rule=rule, beta=beta, tau=2.0) == expected


def test_a_run_is_the_mean_over_its_branches() -> None:
    payload = to_payload(record(1))
    (row,) = reweigh_run([payload], rule="lennorm", beta=0.0)
    branches = [branch for branch in payload.branches if branch.steps]
    assert row.num_branches == len(branches) < len(payload.branches)
    assert row.new_depth == pytest.approx(sum(len(b.steps) for b in branches) / len(branches))
    assert row.stored_depth == pytest.approx(
        sum(b.effective_depth for b in branches) / len(branches)
    )
    assert row.mean_weights == (1.0,) * max(len(branch.steps) for branch in branches)
    (row,) = reweigh_run([payload], rule="seqprob", beta=1.0)
    first = [reweigh(b, rule="seqprob", beta=1.0)[1].weight for b in branches if len(b.steps) > 1]
    assert row.mean_weights[1] == pytest.approx(sum(first) / len(first))


def test_a_missing_ingredient_names_branch_step_and_how_to_log_it() -> None:
    payload = to_payload(iteration_record(1))
    branch = next(b for b in payload.branches if b.steps)
    message = f"branch {branch.branch_id}, branch step 0: rule sampled needs num_samples.*also_log"
    with pytest.raises(MissingIngredient, match=message):
        reweigh(branch, rule="sampled", beta=1.0)
    with pytest.raises(MissingIngredient, match="needs admissible_logprobs"):
        reweigh_run([payload], rule="admissible", beta=1.0)


def write_run(folder: Path) -> list[IterationRecord]:
    sink = JsonlSink(folder, None)
    records = [record(iteration) for iteration in (1, 2)]
    for item in records:
        sink.write(item)
    sink.close()
    return records


def test_the_command_prints_a_run_and_a_branch(tmp_path: Path) -> None:
    records = write_run(tmp_path)
    run = CliRunner().invoke(app, ["reweigh", str(tmp_path), "--rule", "seqprob", "--beta", "0"])
    assert run.exit_code == 0, run.output
    lines = run.output.splitlines()
    assert lines[0] == "seqprob, beta 0"
    assert [line.split()[0] for line in lines[2:]] == ["1", "2"]
    assert lines[2].split()[4:] == ["1.000"] * len(lines[2].split()[4:])

    branch = next(b for b in records[0].branches if len(b.steps) > 1)
    arguments = ["reweigh", str(tmp_path), "--rule", "sampled", "--branch", branch.branch_id]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    steps = run.output.splitlines()[3:]
    assert len(steps) == len(branch.steps)
    assert float(steps[1].split()[4]) == pytest.approx(0.5 / 9, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "lennorm", "--branch", "nope"], "holds no branch nope"),
        (["--rule", "admissible", "--tau", "0"], "expected more than 0"),
        (["--rule", "luck"], "is not one of"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    write_run(tmp_path)
    run = CliRunner().invoke(app, ["reweigh", str(tmp_path), *arguments])
    assert run.exit_code == 2
    assert message in " ".join(run.output.split())
