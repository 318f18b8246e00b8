"""What `sero reweigh` does: a stored run's weights under another rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sero_core.reachability import WeightRule
from sero_core.reweigh import branch_table, reweigh, reweigh_run, run_table
from sero_core.sinks.log import read_log
from sero_core.types import SeroError


def run_reweigh(
    folder: Path,
    *,
    rule: WeightRule,
    beta: float,
    tau: float,
    branch_id: str,
    say: Callable[[str], None],
) -> None:
    """The whole run by iteration, or one branch by step.

    Errors: `SeroError` where there is no log, no branch (of that id), or an ingredient is missing.
    """
    records = read_log(folder)
    if branch_id:
        stored = (branch for record in records for branch in record.branches)
        branch = next((item for item in stored if item.branch_id == branch_id), None)
        if branch is None:
            raise SeroError(f"{folder} holds no branch {branch_id}")
        weights = reweigh(branch, rule=rule, beta=beta, tau=tau)
        lines = branch_table(branch, weights)
    else:
        found = reweigh_run(records, rule=rule, beta=beta, tau=tau)
        if not found:
            raise SeroError(f"{folder} holds no branches")
        lines = run_table(found)
    say(f"{rule}, beta {beta:g}" + (f", tau {tau:g}" if rule == "admissible" else ""))
    for line in lines:
        say(line)
