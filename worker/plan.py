"""What a claimed job runs: the command of its kind, its folder, and where its lines belong."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from backend.db.queries.jobs import ClaimedJob
from backend.security.bounds import Bounds, violations
from backend.settings import Settings
from backend.validation import merge
from worker.toml import to_toml

LOCK_WAIT_S = 15.0
LOCK_TICK_S = 0.1
TRAINER = (sys.executable, "-m", "sero_core.cli")


@dataclass(frozen=True, slots=True)
class Plan:
    """The command of a job, the folder it writes to, and what its environment adds to ours.

    `iteration`: the checkpoint whose iteration the lines get; None where they pass unchanged.
    """

    args: tuple[str, ...]
    out: Path
    iteration: int | None
    env: dict[str, str] = field(default_factory=dict[str, str])


class JobError(Exception):
    """The job cannot run as asked; the message is its reason."""


class FolderInUse(Exception):
    """A process of an earlier attempt still holds the folder."""


def prepare(settings: Settings, claimed: ClaimedJob) -> Plan:
    """Write the config and make the command. Errors: `JobError`; `FolderInUse`; OSError."""
    run_dir = settings.run_dir(claimed.run_id)
    run_dir.mkdir(parents=True, exist_ok=True)
    env = device_environment(settings, claimed.devices)
    if claimed.kind == "train":
        config = _write_config(run_dir, claimed, settings)
        wait_until_free(run_dir)
        args = (*TRAINER, "train", str(config), "--out", str(run_dir), "--resume")
        return Plan(args, run_dir, None, env)
    iteration = newest_checkpoint(run_dir) if claimed.iteration is None else claimed.iteration
    checkpoint = checkpoint_dir(run_dir, iteration)
    if not (checkpoint / "state.json").is_file():
        raise JobError(f"run {claimed.run_id} has no checkpoint of iteration {iteration} any more")
    out = run_dir / "jobs" / str(claimed.job_id)
    out.mkdir(parents=True, exist_ok=True)
    wait_until_free(out)
    config = _write_config(out, claimed, settings)
    verb = "branch" if claimed.kind == "branch" else "eval"
    args = (*TRAINER, verb, str(config), "--out", str(out), "--checkpoint", str(checkpoint))
    return Plan(args, out, iteration, env)


def device_environment(settings: Settings, devices: tuple[str, ...]) -> dict[str, str]:
    """Pin the process to the devices that the claim gave it.

    A worker without configured devices leaves the variable as it is; one with devices hides those
    that belong to its other jobs, all of them from a job that asked for none.
    """
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if settings.devices else {}


def checkpoint_dir(run_dir: Path, iteration: int) -> Path:
    return run_dir / "checkpoints" / f"iteration-{iteration:05d}"


def newest_checkpoint(run_dir: Path) -> int:
    """Iteration of the newest complete checkpoint; -1 where there is none.

    The trainer's own function would load torch into the worker.
    """
    found = (run_dir / "checkpoints").glob("iteration-*/state.json")
    return max((int(path.parent.name.removeprefix("iteration-")) for path in found), default=-1)


def wait_until_free(folder: Path) -> None:
    """Wait until the process of an attempt that was killed has let go of the folder.

    Errors: `FolderInUse` when it does not within `LOCK_WAIT_S`.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    with (folder / ".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FolderInUse(f"{folder} is in use by another process") from None
                time.sleep(LOCK_TICK_S)


def _write_config(folder: Path, claimed: ClaimedJob, settings: Settings) -> Path:
    """The run's config with the job's overrides, complete or absent.

    Errors: `JobError` for a folder, endpoint or secret that this worker's settings do not allow.
    """
    data = merge(claimed.config, claimed.overrides)
    if outside := violations(data, Bounds(settings.roots, settings.endpoints)):
        found = "; ".join(f"{item.field}: {item.message}, {item.allowed}" for item in outside)
        raise JobError(f"its config names what this worker does not allow: {found}")
    staging = folder / f".config.{claimed.job_id}.toml"
    staging.write_text(to_toml(data))
    target = folder / "config.toml"
    os.replace(staging, target)
    return target
