"""What a run will need: time from measured runs, memory and disk by formula (docs/jobs.md).

    memory     = P b (4 + [kl_coef > 0]) + T (34 b h l + 8 v) + 0.5 GB
    checkpoint = P b 3                               (weights, and AdamW's two moments)
    disk       = keep_checkpoints x checkpoint + iterations x rows x 2 kB
    time       = iterations x measured seconds per iteration x rows / rows of the measured run

P parameters, b bytes of `policy.dtype`, h hidden size, l layers, v vocabulary, T the tokens of a
micro-batch, rows = num_tasks x group_size x max_steps. The 4 are weights, gradients and AdamW's two
moments; 34 b h l are the activations of a transformer per token (Korthikanti et al., arXiv
2205.05198, equation 1 without the attention term), 8 v the logits and their gradient in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from backend.policy_size import policy_size
from backend.schemas import Estimate
from sero_core.config import RunConfig

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
BASE_BYTES = 500_000_000
LOG_BYTES_PER_ROW = 2_000
MIN_ITERATIONS = 2
MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class _Measured:
    """`seconds` per iteration of runs with `rows` per iteration."""

    num_runs: int
    seconds: float
    checkpoint_bytes: int | None
    is_same_config: bool


_HISTORY = text(
    """
    WITH alike AS (
        SELECT runs.id, jobs.id AS job_id, config_hash = :hash AS is_same,
            (config #>> '{rollout,num_tasks}')::float8 * (config #>> '{rollout,group_size}')::float8
                * (config #>> '{rollout,max_steps}')::float8 AS num_rows
        FROM runs JOIN jobs ON jobs.run_id = runs.id AND jobs.kind = 'train'
        WHERE config #>> '{policy,path}' = :policy AND env = :env AND method = :method
            AND runs.iteration >= :min_iterations
        ORDER BY config_hash = :hash DESC, runs.id DESC LIMIT :max_runs
    ), timed AS (
        SELECT alike.*, (
            SELECT avg(value) FROM metrics WHERE metrics.run_id = alike.id
                AND metrics.job_id = alike.job_id AND key = 'time/iteration_s'
                AND value < 'Infinity'
        ) AS seconds, (
            SELECT max(num_bytes) FROM checkpoints WHERE checkpoints.run_id = alike.id
        ) AS num_bytes
        FROM alike
    )
    SELECT is_same, count(*) AS num_runs, avg(seconds / num_rows) AS seconds_per_row,
        max(num_bytes) AS checkpoint_bytes
    FROM timed WHERE seconds IS NOT NULL AND num_rows > 0
    GROUP BY is_same ORDER BY is_same DESC LIMIT 1
    """
)


def estimate(connection: Connection, config: RunConfig, method: str) -> Estimate:
    """The needs of one run. Null where neither a measured run nor the policy's folder is there."""
    measured = _measure(connection, config, method)
    size = policy_size(config.policy.path)
    memory = checkpoint = None
    if size is not None:
        width = DTYPE_BYTES[config.policy.dtype]
        copies = 5 if config.loss.kl_coef > 0 else 4
        per_token = 34 * width * size.hidden * size.layers + 8 * size.vocab
        memory = size.num_parameters * width * copies + BASE_BYTES
        memory += config.optimizer.microbatch_tokens * per_token
        checkpoint = size.num_parameters * width * 3
    if measured is not None and measured.checkpoint_bytes is not None:
        checkpoint = measured.checkpoint_bytes
    disk = None
    if checkpoint is not None:
        log = config.num_iterations * rows_per_iteration(config) * LOG_BYTES_PER_ROW
        disk = config.keep_checkpoints * checkpoint + log
    return Estimate(
        basis="formula" if measured is None else "history",
        num_runs=0 if measured is None else measured.num_runs,
        duration_s=None if measured is None else measured.seconds * config.num_iterations,
        memory_bytes=memory,
        checkpoint_bytes=checkpoint,
        disk_bytes=disk,
        explanation=_explain(measured, has_size=size is not None),
    )


def rows_per_iteration(config: RunConfig) -> int:
    """At most so many policy steps in one iteration."""
    return config.rollout.num_tasks * config.rollout.group_size * config.rollout.max_steps


def _measure(connection: Connection, config: RunConfig, method: str) -> _Measured | None:
    row = connection.execute(
        _HISTORY,
        {
            "hash": config.group_hash(),
            "policy": config.policy.path,
            "env": config.env.name,
            "method": method,
            "min_iterations": MIN_ITERATIONS,
            "max_runs": MAX_RUNS,
        },
    ).one_or_none()
    if row is None:
        return None
    seconds = row.seconds_per_row * rows_per_iteration(config)
    return _Measured(row.num_runs, seconds, row.checkpoint_bytes, row.is_same)


def _explain(measured: _Measured | None, *, has_size: bool) -> str:
    if measured is None:
        time = "no run of this policy and environment was measured yet, so the time is not known"
    elif measured.is_same_config:
        time = f"time as measured in {measured.num_runs} run(s) of the same config"
    else:
        time = (
            f"time scaled from {measured.num_runs} run(s) of the same policy and environment "
            "by the steps of an iteration"
        )
    sizes = "memory and disk by formula (docs/jobs.md)"
    if not has_size:
        sizes = "memory is not known: the policy's folder is not on the API's machine"
    return f"{time}; {sizes}"
