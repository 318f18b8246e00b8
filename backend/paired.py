"""Two sides on the same tasks: the paired difference, its interval, and a verdict in words.

    d_t = mean over side B's episodes of task t - mean over side A's,   D = mean over tasks of d_t

The interval is the percentile bootstrap over tasks at 95 % (pairs stay together; seeds within a
task are averaged before). With one episode a side and task, McNemar's exact test on the discordant
tasks is given too: p = 2 sum_{i<=min(b,c)} C(b+c, i) / 2^(b+c), at most 1 (Dietterich 1998).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

NUM_RESAMPLES = 10_000
SEED = 0
FEW_TASKS = 30


@dataclass(frozen=True, slots=True)
class Paired:
    """`difference`, `low`, `high` are rates (B - A). `p_value`: McNemar's, None where it does not
    apply. `only_a`, `only_b`: tasks that one side wins more often."""

    num_tasks: int
    rate_a: float
    rate_b: float
    difference: float
    low: float
    high: float
    p_value: float | None
    only_a: int
    only_b: int
    verdict: str


def compare(a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]]) -> Paired | None:
    """Task -> results of its episodes (1 = won), for each side. None: no task in common."""
    tasks = sorted(a.keys() & b.keys())
    if not tasks:
        return None
    means_a = np.array([np.mean(a[task]) for task in tasks])
    means_b = np.array([np.mean(b[task]) for task in tasks])
    differences = means_b - means_a
    low, high = _interval(differences)
    only_a, only_b = int((differences < 0).sum()), int((differences > 0).sum())
    is_single = all(len(a[task]) == len(b[task]) == 1 for task in tasks)
    p_value = mcnemar(only_a, only_b) if is_single else None
    difference = float(differences.mean())
    return Paired(
        num_tasks=len(tasks),
        rate_a=float(means_a.mean()),
        rate_b=float(means_b.mean()),
        difference=difference,
        low=low,
        high=high,
        p_value=p_value,
        only_a=only_a,
        only_b=only_b,
        verdict=_verdict(difference, low, high, len(tasks)),
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p for the discordant counts."""
    count = only_a + only_b
    if count == 0:
        return 1.0
    tail = sum(comb(count, i) for i in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**count)


def _interval(differences: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(SEED)
    count = len(differences)
    drawn = rng.integers(0, count, size=(NUM_RESAMPLES, count), dtype=np.int32)
    means = differences[drawn].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _verdict(difference: float, low: float, high: float, num_tasks: int) -> str:
    points = f"{difference * 100:+.1f} points (95 % interval {low * 100:+.1f} to {high * 100:+.1f})"
    few = f"; only {num_tasks} tasks" if num_tasks < FEW_TASKS else ""
    if low > 0:
        return f"B is better by {points} on {num_tasks} tasks{few}"
    if high < 0:
        return f"B is worse by {points} on {num_tasks} tasks{few}"
    return f"no difference that these {num_tasks} tasks could show: {points}"
