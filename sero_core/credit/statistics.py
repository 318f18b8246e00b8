"""Group statistics in float64: the one place where estimators subtract a mean and divide by a std.

Public code disagrees on every convention here (docs/methods.md, Conventions), so each is an
argument with a name. Arrays have one entry per row (N rows; a row is a step).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Over = Literal["episodes", "first_rows", "rows"]
Singleton = Literal["zero", "raw"]

RESOLUTION = 64 * float(np.finfo(np.float64).eps)
"""A difference to the mean below this share of the largest sample is rounding, hence 0."""


def rows_by_label(labels: Iterable[Hashable]) -> list[IntArray]:
    """Row numbers of each label, in order of first appearance."""
    found: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        found.setdefault(label, []).append(row)
    return [np.array(rows, dtype=np.int64) for rows in found.values()]


def center(values: FloatArray, samples: FloatArray) -> FloatArray:
    """`values` minus the mean of `samples`, where differences within rounding are exactly 0.

    The mean of n equal numbers can be one unit in the last place off, and dividing by a std of 0
    plus 1e-6 would blow that up (docs/correctness.md T25); HGPO drops items that are exactly 0, so
    a residue would also change the weights of all others (T26).
    """
    difference = values - samples.mean()
    difference[np.abs(difference) <= RESOLUTION * np.abs(samples).max()] = 0.0
    return difference


def standardize(
    values: FloatArray,
    samples: FloatArray,
    *,
    normalize_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    std_floor: float = 0.0,
) -> FloatArray:
    """(values - mean) / (max(std, std_floor) + eps), mean and std (`ddof`) of `samples`.

    A single sample has mean 0 and std 1, the reading of public code: the raw value comes back,
    over 1 + eps. Without `normalize_std` only the mean is subtracted.
    """
    if len(samples) == 1:
        centered, std = values.copy(), 1.0
    else:
        centered, std = center(values, samples), float(samples.std(ddof=ddof))
    return centered / (max(std, std_floor) + eps) if normalize_std else centered


def episode_samples(scores: FloatArray, episodes: list[IntArray], over: Over) -> FloatArray:
    """What enters a group's statistics: all rows, or one value per episode.

    `episodes`: the mean of the episode's rows (their common value where the rows agree);
    `first_rows`: the value of its first row, that row's own format penalty included.
    """
    if over == "rows":
        return scores[np.concatenate(episodes)]
    if over == "first_rows":
        return np.array([scores[rows[0]] for rows in episodes])
    return np.array([_mean(scores[rows]) for rows in episodes])


def group_advantages(
    scores_N: ArrayLike,
    groups_N: Iterable[Hashable],
    episodes_N: Iterable[Hashable] | None = None,
    *,
    statistics: Over = "episodes",
    normalize_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    std_floor: float = 0.0,
    singleton: Singleton = "zero",
) -> FloatArray:
    """A = (score - mean_g) / (std_g + eps) for every row of group g (arXiv 2402.03300, 4.1.2).

    `scores_N` are episode returns, one per row; `groups_N` and `episodes_N` label the rows
    (default: each row an episode of its own), rows in any order, except that `first_rows` takes
    each episode's first row in the order given. `statistics`, `ddof`, `eps`, `std_floor`: see
    `episode_samples` and `standardize`. A group of one episode gives 0 (`singleton = "zero"`), or
    its raw score where there is one sample only (`"raw"`). Rows whose score is not finite are left
    out of the statistics and get 0. Shape (N,), float64.
    """
    scores = np.asarray(scores_N, dtype=np.float64)
    owners = range(len(scores)) if episodes_N is None else episodes_N
    advantages = np.zeros_like(scores)
    for rows, episodes in finite_groups(scores, groups_N, owners):
        if len(episodes) == 1 and singleton == "zero":
            continue
        advantages[rows] = standardize(
            scores[rows],
            episode_samples(scores, episodes, statistics),
            normalize_std=normalize_std,
            ddof=ddof,
            eps=eps,
            std_floor=std_floor,
        )
    return advantages


def finite_groups(
    scores: FloatArray, groups_N: Iterable[Hashable], episodes_N: Iterable[Hashable]
) -> list[tuple[IntArray, list[IntArray]]]:
    """(rows, rows of each episode) of every group, rows with a finite score only.

    Errors: ValueError if the arrays differ in length.
    """
    groups, owners = list(groups_N), list(episodes_N)
    if not len(scores) == len(groups) == len(owners):
        raise ValueError(
            f"expected one score, group and episode per row, "
            f"got {len(scores)}, {len(groups)} and {len(owners)}"
        )
    found: list[tuple[IntArray, list[IntArray]]] = []
    for members in rows_by_label(groups):
        rows = members[np.isfinite(scores[members])]
        if len(rows):
            inside = rows_by_label(owners[row] for row in rows)
            found.append((rows, [rows[positions] for positions in inside]))
    return found


def _mean(values: FloatArray) -> float:
    """The mean; equal values give that value exactly."""
    return float(values[0] + center(values, values[:1]).mean())
