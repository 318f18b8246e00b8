"""Reachability weight by depth over training, with what it goes along with."""

from __future__ import annotations

from sqlalchemy import Connection, text

from backend.db.queries.metrics import bucket_size, iteration_range
from backend.db.queries.runs import training_job_id
from backend.schemas import DepthBucket, DepthCell, DepthMapResponse

_FINITE = "weight > '-Infinity' AND weight < 'Infinity'"
_QUANTILES = """,
        percentile_cont(ARRAY[0.1, 0.5, 0.9]) WITHIN GROUP (ORDER BY weight)
            FILTER (WHERE {finite}) AS quantiles
"""
_CELLS = """
    SELECT iteration / :size * :size AS iteration, depth, count(*) AS num_steps,
        avg(weight) FILTER (WHERE {finite}) AS mean_weight,
        avg((weight > 0.5)::int::float8) FILTER (WHERE {finite}) AS share_reachable
        {quantiles}
    FROM branch_steps {join}
    WHERE branch_steps.run_id = :run_id AND branch_steps.job_id = :job_id {which}
    GROUP BY 1, 2 ORDER BY 1, 2
"""
_MARGINAL = """
    SELECT iteration / :size * :size AS iteration, count(*) AS num_branches,
        avg(effective_depth) FILTER (
            WHERE effective_depth > '-Infinity' AND effective_depth < 'Infinity'
        ) AS effective_depth,
        avg((outcome = 'won')::int::float8) AS branch_success
    FROM branches WHERE run_id = :run_id AND job_id = :job_id {which}
    GROUP BY 1 ORDER BY 1
"""
_SUCCESS = text(
    """
    SELECT iteration / :size * :size AS iteration, avg(success) AS success
    FROM iterations WHERE run_id = :run_id AND job_id = :job_id GROUP BY 1
    """
)


def depth_map(
    connection: Connection,
    run_id: int,
    max_buckets: int,
    *,
    task_type: str | None = None,
    has_quantiles: bool = False,
) -> DepthMapResponse:
    """By (bucket of iterations, depth) over the branches of the run's training."""
    job_id = training_job_id(connection, run_id)
    first, last = iteration_range(connection, run_id, job_id)
    size = 1 if first is None or last is None else bucket_size(first, last, max_buckets)
    values: dict[str, object] = {"run_id": run_id, "job_id": job_id, "size": size}
    which = ""
    if task_type is not None:
        values["task_type"] = task_type
        which = "AND task_type = :task_type"
    cells = text(
        _CELLS.format(
            finite=_FINITE,
            quantiles=_QUANTILES.format(finite=_FINITE) if has_quantiles else "",
            join="" if task_type is None else "JOIN branches USING (run_id, branch_id)",
            which="" if task_type is None else "AND task_type = :task_type",
        ).replace("iteration / :size", "branch_steps.iteration / :size")
    )
    success = {row.iteration: row.success for row in connection.execute(_SUCCESS, values)}
    marginal = connection.execute(text(_MARGINAL.format(which=which)), values)
    return DepthMapResponse(
        run_id=run_id,
        bucket_iterations=size,
        cells=[
            DepthCell.model_validate(_cell(dict(row)))
            for row in connection.execute(cells, values).mappings()
        ],
        buckets=[
            DepthBucket.model_validate({**row, "success": success.get(row["iteration"])})
            for row in marginal.mappings()
        ],
    )


def _cell(row: dict[str, object]) -> dict[str, object]:
    quantiles = row.pop("quantiles", None)
    if isinstance(quantiles, list):
        row |= zip(("p10_weight", "median_weight", "p90_weight"), quantiles, strict=True)
    return row
