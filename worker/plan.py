"""What a claimed job runs: the command of its kind, its folder, and where its lines belong."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from sqlalchemy import Engine

from backend.db.queries.jobs import ClaimedJob
from backend.db.queries.stored import MissingRows, read_rows
from backend.security.bounds import Bounds, violations
from backend.settings import Settings
from backend.validation import merge
from sero_core.stored import ROWS_FILE
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


def prepare(engine: Engine, settings: Settings, claimed: ClaimedJob) -> Plan:
    """Write the config and what the job works on, and make the command.

    Errors: `JobError`; `FolderInUse`; OSError; what a lost database raises.
    """
    run_dir = settings.run_dir(claimed.run_id)
    run_dir.mkdir(parents=True, exist_ok=True)
    env = device_environment(settings, claimed.devices)
    if claimed.kind == "train":
        config = _write_config(run_dir, claimed, settings)
        wait_until_free(run_dir)
        args = (*TRAINER, "train", str(config), "--out", str(run_dir), "--resume")
        return Plan(args, run_dir, None, env)
    out = run_dir / "jobs" / str(claimed.job_id)
    out.mkdir(parents=True, exist_ok=True)
    wait_until_free(out)
    if claimed.kind == "export":
        args = (sys.executable, "-m", "backend.bundle", str(claimed.run_id), str(out))
        return Plan(args, out, None, env)
    config = _write_config(out, claimed, settings)
    if claimed.kind == "rescore":
        return _plan_rescoring(engine, claimed, run_dir, config, env)
    iteration = newest_checkpoint(run_dir) if claimed.iteration is None else claimed.iteration
    checkpoint = _checkpoint(claimed.run_id, run_dir, iteration)
    if claimed.kind == "branch_from_here":
        rows = _write_rows(engine, claimed, out, [str(claimed.payload["episode_id"])], [])
        root = f"{claimed.payload['episode_id']}:{claimed.payload['step']}"
        args = (*TRAINER, "branch", str(config), "--out", str(out), "--checkpoint", str(checkpoint))
        args += ("--root", root, "--rows", str(rows), "--branch-prefix", f"j{claimed.job_id}")
        return Plan(args, out, None, env)
    verb = "branch" if claimed.kind == "branch" else "eval"
    args = (*TRAINER, verb, str(config), "--out", str(out), "--checkpoint", str(checkpoint))
    return Plan(args, out, iteration, env)


def _plan_rescoring(
    engine: Engine, claimed: ClaimedJob, run_dir: Path, config: Path, env: dict[str, str]
) -> Plan:
    out = config.parent
    wanted = cast("list[int]", claimed.payload["iterations"]) or complete_checkpoints(run_dir)
    if not wanted:
        raise JobError(f"run {claimed.run_id} has no checkpoint on this machine")
    branch_ids = cast("list[str]", claimed.payload["branch_ids"])
    rows = _write_rows(engine, claimed, out, [], branch_ids)
    args = (*TRAINER, "rescore", str(config), "--out", str(out), "--rows", str(rows))
    for iteration in sorted(set(wanted)):
        args += ("--checkpoint", str(_checkpoint(claimed.run_id, run_dir, iteration)))
    return Plan(args, out, None, env)


def _write_rows(
    engine: Engine,
    claimed: ClaimedJob,
    out: Path,
    episode_ids: Sequence[str],
    branch_ids: Sequence[str],
) -> Path:
    """What the job works on, as the database has it. Errors: `JobError` where it is gone."""
    with engine.connect() as connection:
        try:
            rows = read_rows(connection, claimed.run_id, episode_ids, branch_ids)
        except MissingRows as error:
            raise JobError(str(error)) from None
    path = out / ROWS_FILE
    path.write_text(rows.model_dump_json())
    return path


def _checkpoint(run_id: int, run_dir: Path, iteration: int) -> Path:
    """Errors: `JobError` when it is not on this machine (any more)."""
    checkpoint = checkpoint_dir(run_dir, iteration)
    if not (checkpoint / "state.json").is_file():
        raise JobError(f"run {run_id} has no checkpoint of iteration {iteration} any more")
    return checkpoint


def device_environment(settings: Settings, devices: tuple[str, ...]) -> dict[str, str]:
    """Pin the process to the devices that the claim gave it.

    A worker without configured devices leaves the variable as it is; one with devices hides those
    that belong to its other jobs, all of them from a job that asked for none.
    """
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if settings.devices else {}


def checkpoint_dir(run_dir: Path, iteration: int) -> Path:
    return run_dir / "checkpoints" / f"iteration-{iteration:05d}"


def newest_checkpoint(run_dir: Path) -> int:
    """Iteration of the newest complete checkpoint; -1 where there is none."""
    return max(complete_checkpoints(run_dir), default=-1)


def complete_checkpoints(run_dir: Path) -> list[int]:
    """Iterations of the complete checkpoints, oldest first.

    The trainer's own function would load torch into the worker.
    """
    found = (run_dir / "checkpoints").glob("iteration-*/state.json")
    return sorted(int(path.parent.name.removeprefix("iteration-")) for path in found)


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
