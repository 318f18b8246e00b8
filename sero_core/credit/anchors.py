"""Anchor states: which rows of a group were taken in the same state (arXiv 2505.10978, eq. 6)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from sero_core.credit.statistics import IntArray, rows_by_label
from sero_core.credit.table import RowTable

AnchorKey = Literal["observation", "state"]


def anchor_keys(table: RowTable, key: AnchorKey) -> tuple[str, ...]:
    """What identifies the state of each row.

    `observation`: the text that the environment showed, as it is: the literature's choice. It
    merges different states that look the same ("Nothing happens."). `state`: the hash of what is
    shown, what is admissible and what is true (`Snapshot.state_hash`), so states are equal if and
    only if their keys are (docs/correctness.md T10).
    """
    return table.observations_N if key == "observation" else table.states_N


def anchor_labels(
    groups_N: Iterable[Hashable], anchors_N: Sequence[str], similarity: float = 1.0
) -> IntArray:
    """Number of each row's anchor group, in order of first appearance; shape (N,).

    Rows of one group share an anchor group if their keys are equal. With `similarity` < 1: greedy
    first match, in row order inside a group, against the key that opened each anchor group, with
    difflib's ratio >= `similarity`.
    Errors: ValueError if the arrays differ in length.
    """
    groups = list(groups_N)
    if len(groups) != len(anchors_N):
        raise ValueError(
            f"expected one group per anchor, got {len(groups)} for {len(anchors_N)} rows"
        )
    openers = list(anchors_N)
    if similarity < 1:
        for rows in rows_by_label(groups):
            keys = [anchors_N[int(row)] for row in rows]
            for row, opener in zip(rows, _openers(keys, similarity), strict=True):
                openers[row] = opener
    numbers: dict[tuple[Hashable, str], int] = {}
    found = [numbers.setdefault(label, len(numbers)) for label in zip(groups, openers, strict=True)]
    return np.array(found, dtype=np.int64)


def _openers(keys: Sequence[str], similarity: float) -> list[str]:
    """For each key the key that opened its anchor group."""
    matchers: dict[str, SequenceMatcher[str]] = {}
    known: dict[str, str] = {}
    for key in keys:
        if key not in known:
            known[key] = _first_match(key, matchers, similarity)
    return [known[key] for key in keys]


def _first_match(key: str, matchers: dict[str, SequenceMatcher[str]], similarity: float) -> str:
    """The opener of the first anchor group that is similar enough; `key` opens one if none is."""
    for opener, matcher in matchers.items():
        matcher.set_seq1(key)
        bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(bound() >= similarity for bound in bounds):
            return opener
    matchers[key] = SequenceMatcher(None, "", key)
    return key
