"""Evaluation: the tasks that a protocol names, played by a baseline's agent, under fixed seeds.

No oracle exists here: this module has no import path to one, and a build check keeps it so.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sero_core.baselines.episodes import Agent
from sero_core.collect import Sampling
from sero_core.types import Task
from sero_core.types_evaluation import EvalConditions, EvalOutcome, EvalResult, Evaluation

Z_95 = 1.959963984540054
Draw = Callable[[Sequence[Task], int, int], tuple[Task, ...]]
"""A protocol: (tasks, seed, number of the evaluation) -> tasks to play."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A named, ordered, fixed list of tasks, which a protocol draws from. `data_hash` covers the
    whole split that the list comes from.
    """

    name: str
    tasks: tuple[Task, ...]
    data_hash: str


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Covers order and contents (16 hex digits of a SHA-256)."""
    text = "\n".join(f"{task.task_id} {task.content_hash}" for task in tasks)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def evaluate(
    agent: Agent,
    panel: Panel,
    draw: Draw,
    *,
    sampling: Sampling,
    iteration: int,
    number: int,
    conditions: EvalConditions,
) -> Evaluation:
    """Play what `draw` names for each seed of the conditions; `number` counts evaluations from 0.

    Sampling seeds depend on (seed, task) only, not on the iteration. An episode that environment
    workers lost every time is missing from the outcomes, which the log says.
    """
    outcomes: list[EvalOutcome] = []
    draws = {seed: draw(panel.tasks, seed, number) for seed in conditions.seeds}
    for place, (seed, tasks) in enumerate(draws.items()):
        prefix = f"eval{iteration}-" + (f"s{place}-" if place else "")
        episodes = agent.play(tasks, sampling=sampling, seed=seed, prefix=prefix)
        outcomes += [
            EvalOutcome(
                task_id=task.task_id,
                task_type=task.task_type,
                seed=seed,
                is_won=episode.is_won,
                score=episode.score,
                num_steps=len(episode.steps),
            )
            for task, episode in zip(tasks, episodes, strict=True)
            if episode is not None
        ]
    results = summarize(panel.name, outcomes)
    return Evaluation(
        evaluation_id=f"{panel.name}-{iteration}",
        iteration=iteration,
        panel=panel.name,
        panel_hash=tasks_hash([task for tasks in dict.fromkeys(draws.values()) for task in tasks]),
        macro_rate=macro_rate(results),
        conditions=conditions,
        results=results,
        outcomes=tuple(outcomes),
    )


def evaluation_number(iteration: int, every: int) -> int:
    """How many evaluations of a run came before the one after this iteration.

    A run is evaluated at 0, at multiples of `every` and at its end (`every` 0: at 0 and at its
    end). Only an end that is no multiple needs rounding up.
    """
    return math.ceil(iteration / every) if every else int(iteration > 0)


def summarize(panel: str, outcomes: Sequence[EvalOutcome]) -> tuple[EvalResult, ...]:
    """Row `all` (micro mean) first, then one row per task type in alphabetical order."""
    types = sorted({outcome.task_type for outcome in outcomes})
    rows = [_result(panel, "all", outcomes)]
    rows += [_result(panel, name, [o for o in outcomes if o.task_type == name]) for name in types]
    return tuple(rows)


def macro_rate(results: Sequence[EvalResult]) -> float:
    """Mean of the task types' rates, each type with the same weight; 0 without any."""
    rates = [result.rate for result in results if result.task_type != "all"]
    return sum(rates) / len(rates) if rates else 0.0


def rates_by_seed(outcomes: Sequence[EvalOutcome]) -> dict[int, float]:
    """Success rate under each seed, in the order of the outcomes."""
    rates: dict[int, float] = {}
    for seed in dict.fromkeys(outcome.seed for outcome in outcomes):
        mine = [outcome.is_won for outcome in outcomes if outcome.seed == seed]
        rates[seed] = sum(mine) / len(mine)
    return rates


def wilson_interval(num_won: float, num_tasks: float) -> tuple[float, float]:
    """Wilson score interval at 95 % for a binomial rate; (0, 1) when there are no tasks.

    Source: E. B. Wilson, JASA 22 (1927).
    """
    if num_tasks == 0:
        return 0.0, 1.0
    rate, squared = num_won / num_tasks, Z_95**2
    center = rate + squared / (2 * num_tasks)
    spread = Z_95 * math.sqrt(rate * (1 - rate) / num_tasks + squared / (4 * num_tasks**2))
    scale = 1 + squared / num_tasks
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def effective_episodes(plays: Sequence[int]) -> float:
    """Independent episodes that (m_1, m_2, …) plays of different tasks are worth at least.

    Source: L. Kish, Survey Sampling (1965): (sum m)^2 / sum m^2, which is exact where a task's
    outcome is the same at every play, and too careful otherwise. One play each: the number of
    tasks. S plays of each of n tasks: n.
    """
    return sum(plays) ** 2 / sum(play**2 for play in plays) if plays else 0.0


def _result(panel: str, task_type: str, outcomes: Sequence[EvalOutcome]) -> EvalResult:
    num_won, count = sum(outcome.is_won for outcome in outcomes), len(outcomes)
    plays = Counter(outcome.task_id for outcome in outcomes)
    rate = num_won / count if count else 0.0
    effective = effective_episodes(list(plays.values()))
    low, high = wilson_interval(rate * effective, effective)
    return EvalResult(
        panel=panel,
        task_type=task_type,
        num_tasks=len(plays),
        num_episodes=count,
        num_won=num_won,
        rate=rate,
        low=low,
        high=high,
        mean_score=sum(outcome.score for outcome in outcomes) / count if count else 0.0,
        mean_steps=sum(outcome.num_steps for outcome in outcomes) / count if count else 0.0,
    )
