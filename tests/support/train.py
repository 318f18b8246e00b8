"""Run the real trainer in a process of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sero_core.config import load_config

TINY = Path(__file__).parent / "tiny.toml"
"""A run of seconds on the demo policy."""


def train_command(out: Path, *overrides: str) -> list[str]:
    """`sero train tests/support/tiny.toml --out OUT` with overrides."""
    command = [sys.executable, "-m", "sero_core.cli", "train", str(TINY), "--out", str(out)]
    for override in overrides:
        command += ["--set", override]
    return command


def run_in_process(out: Path, num_iterations: int, *overrides: str) -> None:
    """Train the tiny run up to an iteration in this process, on from what is in `out`."""
    from sero_core.commands import run_training

    config = load_config(TINY, (f"num_iterations={num_iterations}", *overrides))
    said: list[str] = []
    assert run_training(config, out, resume=True, say=said.append) == 0, said


def wait_for_iteration(out: Path, iteration: int, timeout_s: float = 240) -> None:
    """Until `records.jsonl` holds the line of this iteration. Errors: TimeoutError."""
    path = out / "records.jsonl"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > iteration:
            return
        time.sleep(0.05)
    raise TimeoutError(f"no iteration {iteration} in {path} after {timeout_s} s")
