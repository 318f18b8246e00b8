"""Evaluations as tables in the layout of the papers: one row per policy; for ALFWorld one column
per task type, for WebShop the mean score and the success rate.

`All` is the mean over episodes (micro), `Macro` the mean of the six types' rates; papers print
either under the name "All" (docs/evaluation.md). Rates are in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sero_core.records import EvaluationPayload
from sero_core.sinks.log import read_log
from sero_core.types import SeroError

ALFWORLD_COLUMNS = {
    "pick_and_place_simple": "Pick",
    "look_at_obj_in_light": "Look",
    "pick_clean_then_place_in_recep": "Clean",
    "pick_heat_then_place_in_recep": "Heat",
    "pick_cool_then_place_in_recep": "Cool",
    "pick_two_obj_and_place": "Pick2",
}
NUM_AVERAGED = {"paper": 3}
"""How many of a run's newest evaluations a row is the mean of, by protocol; 1 for the others."""


@dataclass(frozen=True, slots=True)
class Row:
    """A policy on one panel. `cells` are percentages by column, `note` says what they come from."""

    label: str
    panel: str
    cells: dict[str, float]
    note: str


def rows_of_run(folder: Path) -> list[Row]:
    """One row per panel of a run folder: its newest evaluation, or under protocol `paper` the mean
    of its last three.

    Errors: `SeroError` when the folder holds no log or the log no evaluation.
    """
    found: dict[str, list[tuple[int, EvaluationPayload]]] = {}
    for record in read_log(folder):
        for evaluation in record.evaluations:
            found.setdefault(evaluation.panel, []).append((record.iteration, evaluation))
    if not found:
        raise SeroError(f"{folder} holds no evaluation yet")
    return [_row(folder.name, panel, items) for panel, items in found.items()]


def row_of(label: str, evaluation: EvaluationPayload) -> Row:
    """The row of a single evaluation."""
    return _row(label, evaluation.panel, [(0, evaluation)])


def table(rows: Sequence[Row], *, is_markdown: bool) -> list[str]:
    """Aligned text or a markdown table, a block for each panel."""
    lines: list[str] = []
    for panel in dict.fromkeys(row.panel for row in rows):
        mine = [row for row in rows if row.panel == panel]
        columns = list(dict.fromkeys(column for row in mine for column in row.cells))
        head = [panel, *columns, ""]
        body = [
            [row.label, *(_cell(row.cells.get(column)) for column in columns), row.note]
            for row in mine
        ]
        lines += [*([""] if lines else []), *(_markdown if is_markdown else _text)(head, body)]
    return lines


def _row(label: str, panel: str, items: Sequence[tuple[int, EvaluationPayload]]) -> Row:
    newest = items[-1][1]
    protocol = newest.conditions.protocol if newest.conditions else "fixed"
    used = items[-NUM_AVERAGED.get(protocol.split()[0], 1) :]
    cells = [_cells(evaluation) for _, evaluation in used]
    episodes = sum(
        row.num_episodes for _, item in used for row in item.results if row.task_type == "all"
    )
    note = f"{episodes} episodes"
    if newest.conditions:
        note += f", {newest.conditions.baseline}, protocol {protocol}"
    if len(items) > 1:
        at = ", ".join(str(iteration) for iteration, _ in used)
        note += f", iteration{'s' if len(used) > 1 else ''} {at}"
    columns = dict.fromkeys(column for cell in cells for column in cell)
    means = {c: fmean(cell[c] for cell in cells if c in cell) for c in columns}
    return Row(label, panel, means, note)


def _cells(evaluation: EvaluationPayload) -> dict[str, float]:
    """Percentages by column, in the papers' order."""
    rates = {result.task_type: 100 * result.rate for result in evaluation.results}
    whole = next(result for result in evaluation.results if result.task_type == "all")
    if not set(rates) & set(ALFWORLD_COLUMNS):
        return {"Score": 100 * whole.mean_score, "Succ.": rates["all"]}
    cells = {
        short: rates[task_type]
        for task_type, short in ALFWORLD_COLUMNS.items()
        if task_type in rates
    }
    cells["All"] = rates["all"]
    if len(cells) > 2 and evaluation.macro_rate is not None:
        cells["Macro"] = 100 * evaluation.macro_rate
    return cells


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _text(head: list[str], body: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)),
                row[-1],
            ]
        ).rstrip()
        for row in [head, *body]
    ]


def _markdown(head: list[str], body: list[list[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in head[1:-1]), "---"]
    return [f"| {' | '.join(row)} |" for row in [head, rule, *body]]
