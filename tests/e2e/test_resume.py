"""T23: 2N iterations equal N, kill -9, N: same weights, same tasks, same log. Real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sero_core.checkpoint import STATE_FILE, complete_checkpoints, read_state
from sero_core.policy import weights_hash
from sero_core.records import IterationPayload, from_line
from tests.support.train import TINY, train_command, wait_for_iteration

pytestmark = pytest.mark.slow


def log_without_clocks(out: Path) -> list[IterationPayload]:
    lines = (out / "records.jsonl").read_text().splitlines()
    payloads = [from_line(line) for line in lines]
    return [
        payload.model_copy(
            update={
                "written_at": datetime(2026, 1, 1, tzinfo=UTC),
                "metrics": {k: v for k, v in payload.metrics.items() if not k.startswith("time/")},
            }
        )
        for payload in payloads
    ]


LORA = (
    "policy.lora.rank=4",
    "loss.old_logprobs=recompute",
    "loss.correction.weights=token",
    "optimizer.num_epochs=2",
    "optimizer.warmup_steps=20",
)
"""An adapter, its base as the reference, and a warm-up that the kill falls into."""


WITH_A_CRITIC = (
    "estimator.name=ppo",
    "estimator.critic.warmup_iterations=1",
    "estimator.critic.lr=1e-3",
    "rollout.max_rounds=2",
    "rollout.max_steps=5",
    "evaluation.num_tasks=2",
)
"""PPO's critic and its optimizer are state too; rounds of dynamic sampling must repeat."""


@pytest.mark.parametrize(
    "overrides",
    [(), ("sero.optimization=own_optimizer",), WITH_A_CRITIC, LORA],
    ids=["sero", "own_optimizer", "ppo", "lora"],
)
def test_t23_kill_and_resume_equals_an_uninterrupted_run(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = train_command(broken, *overrides)
    subprocess.run(train_command(whole, *overrides), check=True, capture_output=True, timeout=300)

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for_iteration(broken, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(log_without_clocks(broken)) < 5
    subprocess.run([*command, "--resume"], check=True, capture_output=True)

    assert log_without_clocks(broken) == log_without_clocks(whole)
    last_whole, last_broken = (complete_checkpoints(out)[-1][1] for out in (whole, broken))
    assert read_state(last_broken) == read_state(last_whole)
    assert weights_hash(last_broken) == weights_hash(last_whole)
    assert files_of(last_broken) == files_of(last_whole)
    has_critic = any(name.startswith("critic/") for name in files_of(last_whole))
    assert has_critic is (overrides == WITH_A_CRITIC)


def files_of(checkpoint: Path) -> dict[str, str]:
    """Hash of every file: weights of policy and critic, moments of every optimizer."""
    return json.loads((checkpoint / STATE_FILE).read_text())["files"]


def test_sigterm_leaves_a_checkpoint_and_exit_code_75(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = train_command(out, "num_iterations=50", "checkpoint_every=50")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for_iteration(out, 1)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 75, said
    state = read_state(complete_checkpoints(out)[-1][1])
    lines = (out / "records.jsonl").read_text().splitlines()
    logged = [from_line(line).iteration for line in lines]
    assert state.iteration == logged[-1] >= 1
    assert logged == list(range(logged[-1] + 1))


def test_more_iterations_go_on_as_if_they_had_been_planned(tmp_path: Path) -> None:
    whole, extended = tmp_path / "whole", tmp_path / "extended"
    for out, count in ((whole, 3), (extended, 2), (extended, 3)):
        command = [*train_command(out, f"num_iterations={count}"), "--resume"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    last_whole, last_extended = (complete_checkpoints(out)[-1][1] for out in (whole, extended))
    assert weights_hash(last_extended) == weights_hash(last_whole)
    logged = [payload.iteration for payload in log_without_clocks(extended)]
    assert logged == [0, 1, 2, 3]


def test_resume_refuses_another_config_and_a_second_process(tmp_path: Path) -> None:
    out = tmp_path / "run"
    subprocess.run(train_command(out, "num_iterations=1"), check=True, capture_output=True)
    other = subprocess.run(
        [*train_command(out, "optimizer.lr=0.5"), "--resume"], capture_output=True, text=True
    )
    assert other.returncode == 2
    assert "belongs to config" in other.stderr
    again = subprocess.run(train_command(out), capture_output=True, text=True)
    assert again.returncode == 2
    assert "already holds a run" in again.stderr


def test_a_wrong_config_is_one_clear_line_per_field(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(TINY.read_text().replace("num_tasks = 3", "num_tasks = 0\nnum_task = 3"))
    command = [sys.executable, "-m", "sero_core.cli", "train", str(bad), "--out", str(tmp_path)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    assert time.monotonic() - started < 60
    assert done.returncode == 2
    assert "rollout.num_tasks: Input should be greater than or equal to 1" in done.stderr
    assert "rollout.num_task: Extra inputs are not permitted" in done.stderr
    assert "Traceback" not in done.stderr
