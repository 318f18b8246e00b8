"""Results of every task of evaluations, for paired comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One episode of a task: whose, and how it ended."""

    run_id: int
    evaluation_id: str
    iteration: int
    task_id: str
    task_type: str
    is_won: bool
    score: float
    num_steps: int


_RESULTS = text(
    """
    WITH newest AS (
        SELECT DISTINCT ON (run_id) run_id, job_id, evaluation_id, iteration, panel_hash
        FROM evaluations
        WHERE run_id = ANY (:run_ids) AND panel = :panel
            AND (CAST(:iteration AS int) IS NULL OR iteration = :iteration)
        ORDER BY run_id, iteration DESC, created_at DESC
    )
    SELECT newest.run_id, evaluation_id, newest.iteration, panel_hash, task_id, task_type, is_won,
        score, num_steps
    FROM newest JOIN eval_outcomes USING (run_id, job_id, evaluation_id)
    ORDER BY newest.run_id, ordinal
    """
)


def newest_results(
    connection: Connection, run_ids: Sequence[int], panel: str, iteration: int | None
) -> tuple[list[TaskResult], set[str]]:
    """The newest evaluation of each run on the panel (or that of one iteration), and the panels'
    hashes: more than one means that the runs were not evaluated on the same tasks."""
    values = {"run_ids": list(run_ids), "panel": panel, "iteration": iteration}
    rows = connection.execute(_RESULTS, values).all()
    results = [
        TaskResult(
            row.run_id,
            row.evaluation_id,
            row.iteration,
            row.task_id,
            row.task_type,
            row.is_won,
            row.score,
            row.num_steps,
        )
        for row in rows
    ]
    return results, {row.panel_hash for row in rows}


def by_task(results: Sequence[TaskResult]) -> dict[str, list[float]]:
    """Task -> 1 for each won episode, 0 for each other."""
    found: dict[str, list[float]] = defaultdict(list)
    for result in results:
        found[result.task_id].append(float(result.is_won))
    return found
