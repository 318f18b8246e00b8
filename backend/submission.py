"""From a submit request to what the queue takes: config, placement, jobs behind it, lineage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from backend import presets
from backend.db.queries import runs
from backend.db.queries.submit import FollowUp, Placement
from backend.diff import changes
from backend.errors import InvalidRequest
from backend.schemas import (
    Config,
    ConfigChange,
    FieldError,
    JobRequest,
    PlacementFields,
    SubmitRequest,
)
from backend.security.bounds import Bounds, violations
from backend.settings import Settings
from backend.validation import merge
from sero_core.config import RunConfig


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked request. `changes` against the parent's config (empty without a parent)."""

    config: RunConfig
    placement: Placement
    then: tuple[FollowUp, ...]
    parent_run_id: int | None
    changes: list[ConfigChange]


def check(connection: Connection, request: SubmitRequest, settings: Settings) -> Submission:
    """Errors: `InvalidRequest` naming each wrong field."""
    parent = parent_config(connection, request)
    config = presets.to_config(request, settings.configs_dir, parent)
    data: Config = config.model_dump(mode="json")
    bounds = bounds_of(settings)
    check_bounds(data, bounds)
    for index, follow in enumerate(request.then):
        check_bounds(merge(data, follow.overrides), bounds, f"then.{index}.overrides.")
    return Submission(
        config=config,
        placement=placement(connection, request),
        then=tuple(_follow_up(follow, data, f"then.{i}.") for i, follow in enumerate(request.then)),
        parent_run_id=request.from_run,
        changes=[] if parent is None else changes(parent, data),
    )


def parent_config(connection: Connection, request: SubmitRequest) -> Config | None:
    """The config of the run to clone; None where the request names none.

    Errors: `InvalidRequest`.
    """
    if request.from_run is None:
        return None
    found = runs.get_runs(connection, [request.from_run])
    if not found:
        raise wrong("from_run", f"there is no run {request.from_run}", "the number of a run")
    return found[0][1]


def placement(connection: Connection, request: PlacementFields) -> Placement:
    """Errors: `InvalidRequest` naming a job that does not exist."""
    known = runs.known_job_ids(connection, request.after)
    for index, job_id in enumerate(request.after):
        if job_id not in known:
            raise wrong(f"after.{index}", f"there is no job {job_id}", "the id of a job")
    return Placement(request.labels, request.num_devices, request.priority, request.after)


def checked_payload(request: JobRequest, config: Config, prefix: str = "") -> Config:
    """What the job works on, its overrides checked against the run's config.

    Errors: `InvalidRequest` naming each wrong field.
    """
    if request.overrides:
        presets.parse(merge(config, request.overrides), prefix=f"{prefix}overrides.")
    return request.payload()


def check_targets(connection: Connection, run_id: int, request: JobRequest) -> None:
    """Errors: `InvalidRequest` naming a stored episode, step or branch that does not exist."""
    if request.kind == "branch_from_here":
        num_steps = runs.num_steps_of_episode(connection, run_id, str(request.episode_id))
        if num_steps is None:
            message = f"run {run_id} has no episode {request.episode_id}"
            raise wrong("episode_id", message, "the id of a stored episode, without the run")
        if request.step is None or request.step >= num_steps:
            message = f"episode {request.episode_id} has {num_steps} steps"
            raise wrong("step", message, f"an integer >= 0 and < {num_steps}")
    if request.kind == "rescore":
        known = runs.known_branch_ids(connection, run_id, request.branch_ids)
        for index, branch_id in enumerate(request.branch_ids):
            if branch_id not in known:
                message = f"run {run_id} has no branch {branch_id}"
                raise wrong(f"branch_ids.{index}", message, "the id of a stored branch")


def _follow_up(request: JobRequest, config: Config, prefix: str) -> FollowUp:
    if request.kind in ("branch_from_here", "rescore"):
        allowed = "branch, evaluate, export"
        message = f"a {request.kind} job needs rows that do not exist yet"
        raise wrong(f"{prefix}kind", message, allowed)
    if request.after:
        raise wrong(f"{prefix}after", "such a job waits for the training only", "nothing")
    place = Placement(request.labels, request.num_devices, request.priority)
    return FollowUp(request.kind, checked_payload(request, config, prefix), place)


def bounds_of(settings: Settings) -> Bounds:
    """What configs may name on this server."""
    return Bounds(settings.roots, settings.endpoints)


def check_bounds(config: Config, bounds: Bounds, prefix: str = "") -> None:
    """Errors: `InvalidRequest` naming each folder, endpoint or secret that this server does not
    take (docs/security.md)."""
    found = [
        FieldError(field=prefix + item.field, message=item.message, allowed=item.allowed)
        for item in violations(config, bounds)
    ]
    if found:
        raise InvalidRequest(f"the config names {len(found)} thing(s) that are not allowed", found)


def wrong(field: str, message: str, allowed: str | Sequence[object]) -> InvalidRequest:
    """The 422 of one field."""
    said = allowed if isinstance(allowed, str) else ", ".join(str(value) for value in allowed)
    return InvalidRequest(message, [FieldError(field=field, message=message, allowed=said)])
