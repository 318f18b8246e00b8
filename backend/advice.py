"""What is allowed but probably not meant: warnings of the dry run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, select

from backend.db.models import Run
from backend.db.queries.submit import Placement
from backend.db.queries.workers import list_workers
from backend.schemas import Estimate, FieldError
from sero_core.config import RunConfig

FEW_TASKS = 50


def warnings(
    connection: Connection,
    config: RunConfig,
    placement: Placement,
    estimate: Estimate,
    home: Path,
) -> list[FieldError]:
    """One entry per field; `allowed` says what would be usual."""
    found = [
        *_config_warnings(config),
        *_place_warnings(connection, placement),
        *_twins(connection, config),
    ]
    free = shutil.disk_usage(home if home.exists() else Path("/")).free
    if estimate.disk_bytes is not None and estimate.disk_bytes > free:
        message = f"needs about {_gb(estimate.disk_bytes)} of disk, {_gb(free)} are free here"
        found.append(_warn("keep_checkpoints", message, "fewer checkpoints, or a larger disk"))
    return found


def _config_warnings(config: RunConfig) -> Iterator[FieldError]:
    if config.checkpoint_every >= config.num_iterations:
        yield _warn(
            "checkpoint_every",
            f"no checkpoint before iteration {config.num_iterations}: a crash loses everything",
            f"less than {config.num_iterations}",
        )
    if config.evaluation.every == 0:
        yield _warn("evaluation.every", "only the last iteration is evaluated", "1 or more")
    if 0 < config.evaluation.num_tasks < FEW_TASKS:
        yield _warn(
            "evaluation.num_tasks",
            f"a rate over {config.evaluation.num_tasks} tasks has an interval of more than "
            f"{_half_width(config.evaluation.num_tasks):.0%} to each side",
            f"{FEW_TASKS} or more, 0 = all",
        )
    if config.sero is not None and config.sero.reachability.beta == 0:
        message = "beta 0 gives every branch step weight 1, reachable or not"
        yield _warn("sero.reachability.beta", message, "1 is the paper's")


def _place_warnings(connection: Connection, placement: Placement) -> Iterator[FieldError]:
    alive = [worker for worker in list_workers(connection) if worker.is_alive]
    if not alive:
        yield _warn("labels", "no worker is alive: the run would wait", "start a worker")
        return
    wanted = set(placement.labels)
    fitting = [worker for worker in alive if wanted <= set(worker.labels)]
    if not fitting:
        known = sorted({label for worker in alive for label in worker.labels})
        message = f"no living worker has {', '.join(sorted(wanted))}: the run would wait"
        yield _warn("labels", message, ", ".join(known) or "none: no worker has labels")
    elif max(len(worker.devices) for worker in fitting) < placement.num_devices:
        most = max(len(worker.devices) for worker in fitting)
        message = f"no living worker has {placement.num_devices} devices: the run would wait"
        yield _warn("num_devices", message, f"at most {most}")


def _twins(connection: Connection, config: RunConfig) -> Iterator[FieldError]:
    twins = connection.scalars(
        select(Run.id)
        .where(Run.config_hash == config.group_hash(), Run.seed == config.seed)
        .order_by(Run.id)
        .limit(5)
    ).all()
    if twins:
        names = ", ".join(map(str, twins))
        yield _warn("seed", f"run {names} has the same config and seed already", "another seed")


def _warn(field: str, message: str, allowed: str) -> FieldError:
    return FieldError(field=field, message=message, allowed=allowed)


def _half_width(count: int) -> float:
    """Half of the Wilson interval at 95 % of a rate of one half."""
    z = 1.96
    return z * (1 / (4 * count) + z**2 / (4 * count**2)) ** 0.5 / (1 + z**2 / count)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
