"""Run the real trainer in a process of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

TINY = Path(__file__).parent / "tiny.toml"
"""A run of seconds on the demo policy."""


def train_command(out: Path, *overrides: str) -> list[str]:
    """`sero train tests/support/tiny.toml --out OUT` with overrides."""
    command = [sys.executable, "-m", "sero_core.cli", "train", str(TINY), "--out", str(out)]
    for override in overrides:
        command += ["--set", override]
    return command


def wait_for_iteration(out: Path, iteration: int, timeout_s: float = 240) -> None:
    """Until `records.jsonl` holds the line of this iteration. Errors: TimeoutError."""
    path = out / "records.jsonl"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > iteration:
            return
        time.sleep(0.05)
    raise TimeoutError(f"no iteration {iteration} in {path} after {timeout_s} s")
