"""Oracle branches: search over all of them, one with every step, and under other checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend import schemas as s
from backend.db.queries import branch_search, branches
from backend.errors import NotFound
from backend.routes.deps import (
    Cursor,
    Limit,
    OptionalIteration,
    ServicesDep,
    split_permalink,
)
from backend.submission import wrong

router = APIRouter(tags=["episodes and branches"])
Name = Annotated[str | None, Query(max_length=200)]
MAX_LISTED = 100
Depth = Annotated[float | None, Query(ge=0, le=1e6)]
Weight = Annotated[float | None, Query(ge=0, le=1e6)]


@router.get("/branches")
def list_branches(
    services: ServicesDep,
    run_id: Annotated[
        str | None,
        Query(pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$", description="One or more, by comma"),
    ] = None,
    job_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    iteration: OptionalIteration = None,
    min_iteration: OptionalIteration = None,
    max_iteration: OptionalIteration = None,
    task_type: Annotated[
        str | None, Query(max_length=2000, description="One or more, by comma")
    ] = None,
    task_id: Name = None,
    split: Name = None,
    oracle: Name = None,
    outcome: Annotated[
        str | None, Query(max_length=200, description="One or more, by comma")
    ] = None,
    is_episode_won: bool | None = None,
    differs_at_root: Annotated[
        bool | None, Query(description="The oracle's first action is (not) the policy's")
    ] = None,
    min_depth: Annotated[
        int | None, Query(ge=0, le=10_000, description="At least that many branch steps")
    ] = None,
    min_effective_depth: Depth = None,
    max_effective_depth: Depth = None,
    weight_depth: Annotated[
        int | None,
        Query(ge=0, le=10_000, description="Depth of the weight limits; none = the last step"),
    ] = None,
    min_weight: Weight = None,
    max_weight: Weight = None,
    q: Annotated[
        str | None,
        Query(
            max_length=200,
            description="Words of actions, task or reason, each from its beginning; "
            '"in quotes" as a phrase',
        ),
    ] = None,
    observation: Annotated[
        str | None,
        Query(max_length=200, description="Occurs in an observation; slow, so give a run, too"),
    ] = None,
    sort: s.BranchSort = "newest",
    facets: Annotated[bool, Query(description="With the number of each kind")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> s.BranchPage:
    """Search the branches of one run, some or all; newest iteration first, or by a column."""
    if observation and run_id is None:
        raise wrong("observation", "such a search reads every step of a run", "with `run_id`")
    wanted = branch_search.BranchFilter(
        run_ids=[] if run_id is None else [int(part) for part in run_id.split(",")],
        job_id=job_id,
        iteration=iteration,
        min_iteration=min_iteration,
        max_iteration=max_iteration,
        task_types=_listed(task_type),
        task_id=task_id,
        split=split,
        oracle=oracle,
        outcomes=_outcomes(outcome),
        is_episode_won=is_episode_won,
        differs_at_root=differs_at_root,
        min_depth=min_depth,
        min_effective_depth=min_effective_depth,
        max_effective_depth=max_effective_depth,
        weight_depth=weight_depth,
        min_weight=min_weight,
        max_weight=max_weight,
        words=q,
        observation=observation,
    )
    with services.reading() as connection:
        return branch_search.list_branches(
            connection, wanted, sort=sort, limit=limit, cursor=cursor, has_facets=facets
        )


def _listed(value: str | None) -> list[str]:
    return [] if value is None else [part for part in value.split(",") if part][:MAX_LISTED]


def _outcomes(value: str | None) -> list[str]:
    found = _listed(value)
    for part in found:
        if part not in s.OUTCOMES:
            raise wrong("outcome", f"there is no outcome {part!r}", s.OUTCOMES)
    return found


@router.get("/branches/{branch_id}")
def get_branch(services: ServicesDep, branch_id: str) -> s.BranchDetail:
    """One branch with every step, and the whole policy episode around its root.

    The id is `<run_id>-<branch_id>`, as in `12-i5g0e3t4`.
    """
    with services.reading() as connection:
        found = branches.get_branch(connection, *split_permalink(branch_id, "a branch"))
    if found is None:
        raise NotFound(f"there is no branch {branch_id}")
    return found


@router.get("/branches/{branch_id}/rescores")
def get_rescores(services: ServicesDep, branch_id: str) -> s.RescoresResponse:
    """The branch under other checkpoints of its run, as `rescore` jobs measured it."""
    run_id, own_id = split_permalink(branch_id, "a branch")
    with services.reading(run_id) as connection:
        found = branches.list_rescores(connection, run_id, own_id)
    return s.RescoresResponse(branch_id=branch_id, rescores=found)
