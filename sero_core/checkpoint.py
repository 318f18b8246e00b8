"""Checkpoints: safetensors and JSON only, complete or absent.

A checkpoint is written into a temporary folder beside its final place, synced, and renamed; its
`state.json` holds the SHA-256 of every file and is what makes it count as complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sero_core.critic import CRITIC_FOLDER, Critic
from sero_core.optimizer_state import load_optimizer, save_optimizer
from sero_core.policy import Policy, save_policy, weights_hash
from sero_core.types import CheckpointRecord, SeroError

STATE_FILE = "state.json"
POLICY_OPTIMIZER = "optimizer"
"""The folder of the policy's own optimizer; every other optimizer has a folder of its own name."""


class CheckpointError(SeroError):
    """A checkpoint that is missing, damaged or of another config."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a run needs besides weights and optimizer to go on as if nothing had happened.

    The task stream and all sampling are functions of (seed, iteration), so the iteration number is
    their whole state. `progress` are the running totals of the `progress/*` metrics.
    """

    iteration: int
    config_hash: str
    seed: int
    progress: dict[str, float]


def checkpoint_path(out: Path, iteration: int) -> Path:
    return out / "checkpoints" / f"iteration-{iteration:05d}"


@dataclass(frozen=True, slots=True)
class PreparedCheckpoint:
    """A checkpoint that is durable under a temporary name; `commit` makes it count.

    Two phases, because the record that names a checkpoint must be in the log before the checkpoint
    counts: a crash in between resumes from the one before, and no iteration is missing from the
    log.
    """

    record: CheckpointRecord
    temporary: Path
    final: Path
    keep: int

    def commit(self) -> None:
        """Rename into place and delete all but the newest `keep` checkpoints."""
        shutil.rmtree(self.final, ignore_errors=True)
        os.replace(self.temporary, self.final)
        _sync(self.final.parent)
        for _, old in complete_checkpoints(self.final.parents[1])[: -self.keep]:
            shutil.rmtree(old)


def prepare_checkpoint(
    out: Path,
    policy: Policy,
    optimizers: Mapping[str, torch.optim.Optimizer],
    state: TrainerState,
    keep: int,
    critic: Critic | None = None,
) -> PreparedCheckpoint:
    """Write and sync a checkpoint of iteration `state.iteration` under a temporary name.

    Each optimizer is saved in a folder of its name, the critic's weights in `critic`.
    Errors: OSError when the disk is full; the previous checkpoint is untouched then.
    """
    final = checkpoint_path(out, state.iteration)
    temporary = final.with_name(f".{final.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_policy(policy, temporary)
    if critic is not None:
        critic.save(temporary / CRITIC_FOLDER)
    for name, optimizer in optimizers.items():
        save_optimizer(optimizer, temporary / name)
    files = sorted(path for path in temporary.rglob("*") if path.is_file())
    hashes = {str(path.relative_to(temporary)): _sha256(path) for path in files}
    data = {
        "iteration": state.iteration,
        "config_hash": state.config_hash,
        "seed": state.seed,
        "progress": state.progress,
        "files": hashes,
    }
    (temporary / STATE_FILE).write_text(json.dumps(data, indent=1, sort_keys=True))
    for path in (temporary, *temporary.rglob("*")):
        _sync(path)
    record = CheckpointRecord(
        iteration=state.iteration,
        path=str(final.relative_to(out)),
        weights_hash=weights_hash(temporary),
        num_bytes=sum(path.stat().st_size for path in files),
    )
    return PreparedCheckpoint(record, temporary, final, keep)


def discard_unfinished(out: Path) -> None:
    """Delete checkpoints that were not finished, as after a full disk."""
    for temporary in (out / "checkpoints").glob(".iteration-*.tmp"):
        shutil.rmtree(temporary)


def complete_checkpoints(out: Path) -> list[tuple[int, Path]]:
    """(iteration, folder) of every complete checkpoint, oldest first."""
    found = [
        (int(path.name.removeprefix("iteration-")), path)
        for path in (out / "checkpoints").glob("iteration-*")
        if (path / STATE_FILE).is_file()
    ]
    return sorted(found)


def read_state(folder: Path) -> TrainerState:
    """The trainer state of a checkpoint, after checking the hash of every file.

    Errors: `CheckpointError` naming the file that is missing or differs.
    """
    data = json.loads((folder / STATE_FILE).read_text())
    for name, expected in data["files"].items():
        path = folder / name
        got = _sha256(path) if path.is_file() else "no file"
        if got != expected:
            raise CheckpointError(f"checkpoint {folder}: {name} is {got}, expected {expected}")
    return TrainerState(
        iteration=data["iteration"],
        config_hash=data["config_hash"],
        seed=data["seed"],
        progress=data["progress"],
    )


def restore_optimizers(folder: Path, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """Load the moments and step counts of every optimizer.

    Errors: `CheckpointError` naming the optimizer that the checkpoint does not hold.
    """
    for name, optimizer in optimizers.items():
        if not (folder / name).is_dir():
            raise CheckpointError(f"checkpoint {folder} holds no optimizer {name!r}")
        load_optimizer(optimizer, folder / name)


def check_same_run(
    folder: Path, state: TrainerState, config_hashes: Sequence[str], seed: int
) -> None:
    """Errors: `CheckpointError` when the checkpoint belongs to another config or seed."""
    if state.config_hash not in config_hashes or state.seed != seed:
        raise CheckpointError(
            f"checkpoint {folder} belongs to config {state.config_hash} seed {state.seed}, "
            f"this run is config {config_hashes[0]} seed {seed}; use another --out folder"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
