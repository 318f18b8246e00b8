"""Oracle branches: search over all of them, one with every step, and under other checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from backend import schemas as s
from backend.db.queries import branch_search, branches
from backend.errors import NotFound
from backend.routes.deps import (
    ServicesDep,
    split_permalink,
)
from backend.submission import wrong

router = APIRouter(tags=["episodes and branches"])
MAX_LISTED = 100
Name = Annotated[str | None, Field(max_length=200)]
Iteration = Annotated[int | None, Field(ge=0, le=2**31 - 1)]
Depth = Annotated[int | None, Field(ge=0, le=10_000)]
Amount = Annotated[float | None, Field(ge=0, le=1e6)]


class BranchQuery(BaseModel):
    """Which branches, in which order."""

    model_config = ConfigDict(frozen=True)

    run_id: str | None = Field(
        default=None,
        pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$",
        description="One or more, by comma",
    )
    job_id: int | None = Field(default=None, ge=1, le=2**31 - 1)
    iteration: Iteration = None
    min_iteration: Iteration = None
    max_iteration: Iteration = None
    task_type: str | None = Field(
        default=None, max_length=2000, description="One or more, by comma"
    )
    task_id: Name = None
    split: Name = None
    oracle: Name = None
    outcome: str | None = Field(default=None, max_length=200, description="One or more, by comma")
    is_episode_won: bool | None = None
    differs_at_root: bool | None = Field(
        default=None, description="The oracle's first action is (not) the policy's"
    )
    min_depth: Depth = Field(default=None, description="At least that many branch steps")
    min_effective_depth: Amount = None
    max_effective_depth: Amount = None
    weight_depth: Depth = Field(
        default=None, description="Depth of the weight limits; none = the last step"
    )
    min_weight: Amount = None
    max_weight: Amount = None
    q: str | None = Field(
        default=None,
        max_length=200,
        description="Words of actions, task or reason, each from its beginning; "
        '"in quotes" as a phrase',
    )
    observation: str | None = Field(
        default=None,
        max_length=200,
        description="Occurs in an observation; slow, so give a run, too",
    )
    sort: s.BranchSort = "newest"
    facets: bool = Field(default=False, description="With the number of each kind")
    limit: int = Field(default=50, ge=1, le=500, description="Entries per page")
    cursor: str | None = Field(
        default=None, max_length=500, description="`next_cursor` of the last page"
    )

    def to_filter(self) -> branch_search.BranchFilter:
        """Errors: `InvalidRequest` for an unknown outcome, or a search for an observation without
        a run."""
        if self.observation and self.run_id is None:
            raise wrong("observation", "such a search reads every step of a run", "with `run_id`")
        return branch_search.BranchFilter(
            run_ids=[] if self.run_id is None else [int(part) for part in self.run_id.split(",")],
            job_id=self.job_id,
            iteration=self.iteration,
            min_iteration=self.min_iteration,
            max_iteration=self.max_iteration,
            task_types=_listed(self.task_type),
            task_id=self.task_id,
            split=self.split,
            oracle=self.oracle,
            outcomes=_outcomes(self.outcome),
            is_episode_won=self.is_episode_won,
            differs_at_root=self.differs_at_root,
            min_depth=self.min_depth,
            min_effective_depth=self.min_effective_depth,
            max_effective_depth=self.max_effective_depth,
            weight_depth=self.weight_depth,
            min_weight=self.min_weight,
            max_weight=self.max_weight,
            words=self.q,
            observation=self.observation,
        )


@router.get("/branches")
def list_branches(services: ServicesDep, query: Annotated[BranchQuery, Query()]) -> s.BranchPage:
    """Search the branches of one run, some or all; newest iteration first, or by a column."""
    wanted = query.to_filter()
    with services.reading() as connection:
        return branch_search.list_branches(
            connection,
            wanted,
            sort=query.sort,
            limit=query.limit,
            cursor=query.cursor,
            has_facets=query.facets,
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
