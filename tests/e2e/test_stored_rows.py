"""Jobs on stored rows, with the real trainer: exactness is the whole point of them.

The branches of iteration 2 were weighed by the policy after iteration 1. So scoring them again
under that checkpoint must give the logged weights, and branching from the same step the same
branch.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sero_core.records import IterationPayload, from_line
from sero_core.stored import StoredRows
from tests.support.train import TINY, train_command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[IterationPayload]]:
    """Two iterations with every checkpoint kept."""
    out = tmp_path_factory.mktemp("run")
    command = train_command(out, "num_iterations=2", "keep_checkpoints=9", "evaluation.num_tasks=2")
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    lines = (out / "records.jsonl").read_text().splitlines()
    return out, [from_line(line) for line in lines]


def sero(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sero_core.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


def checkpoint(out: Path, iteration: int) -> str:
    return str(out / "checkpoints" / f"iteration-{iteration:05d}")


def records(out: Path) -> list[IterationPayload]:
    return [from_line(line) for line in (out / "records.jsonl").read_text().splitlines()]


def test_rescoring_under_the_same_policy_gives_the_logged_weights(
    run: tuple[Path, list[IterationPayload]], tmp_path: Path
) -> None:
    out, payloads = run
    second = payloads[2]
    branches = [branch for branch in second.branches if branch.steps]
    assert branches
    rows = tmp_path / "rows.json"
    stored = StoredRows(episodes=second.episodes, branches=branches)
    rows.write_text(stored.model_dump_json())
    checkpoints = [arg for i in (2, 1) for arg in ("--checkpoint", checkpoint(out, i))]
    done = sero(
        "rescore", str(TINY), "--out", str(tmp_path / "out"), "--rows", str(rows), *checkpoints
    )
    assert done.returncode == 0, done.stderr
    before, after = records(tmp_path / "out")
    assert (before.iteration, after.iteration) == (1, 2)
    for branch, rescore in zip(branches, before.rescores, strict=True):
        assert rescore.branch_id == branch.branch_id
        assert rescore.weights == pytest.approx([s.weight for s in branch.steps], abs=1e-5)
        means = [s.action_logprob_mean for s in branch.steps]
        assert rescore.logprob_means == pytest.approx(means, abs=1e-4)
        assert rescore.effective_depth == pytest.approx(branch.effective_depth, abs=1e-4)
    assert before.rescores[0].weights_hash != after.rescores[0].weights_hash
    assert [r.weights for r in before.rescores] != [r.weights for r in after.rescores]


def test_branching_from_the_same_step_gives_the_same_branch(
    run: tuple[Path, list[IterationPayload]], tmp_path: Path
) -> None:
    out, payloads = run
    second = payloads[2]
    branch = next(b for b in second.branches if b.steps)
    rows = tmp_path / "rows.json"
    rows.write_text(StoredRows(episodes=second.episodes).model_dump_json())
    root = f"{branch.episode_id}:{branch.root_index}"
    args = ["branch", str(TINY), "--checkpoint", checkpoint(out, 1), "--rows", str(rows)]
    done = sero(*args, "--out", str(tmp_path / "out"), "--root", root, "--branch-prefix", "j7")
    assert done.returncode == 0, done.stderr
    (record,) = records(tmp_path / "out")
    (again,) = record.branches
    assert (record.iteration, again.branch_id) == (1, f"j7{branch.branch_id}")
    assert (again.root_rule, again.is_trained) == ("given", False)
    assert again.restored_hash == branch.root_hash
    assert [s.action for s in again.steps] == [s.action for s in branch.steps]
    weights = [s.weight for s in branch.steps]
    assert [s.weight for s in again.steps] == pytest.approx(weights, abs=1e-5)
    episode = next(e for e in second.episodes if e.episode_id == branch.episode_id)
    assert again.is_episode_won == episode.is_won

    far = sero(*args, "--out", str(tmp_path / "far"), "--root", f"{branch.episode_id}:99")
    assert (far.returncode, "has steps 0 to" in far.stderr) == (2, True)
    wrong = sero(*args, "--out", str(tmp_path / "wrong"), "--root", "nope:1")
    assert (wrong.returncode, "no episode nope" in wrong.stderr) == (2, True)
