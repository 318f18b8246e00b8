"""Numbers, times and names as people read them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from backend.schemas import RunSummary

_GOAL = re.compile(r"Your task is to: (.+?)\.?\s*$", re.MULTILINE)
_WISH = re.compile(r"^WebShop(?: \[SEP\] |\n)Instruction: ?(?: ?\[SEP\] |\n)(.+?)(?: \[SEP\] |\n)")
_TASK_TYPES = {
    "pick_and_place_simple": "Pick",
    "look_at_obj_in_light": "Look",
    "pick_clean_then_place_in_recep": "Clean",
    "pick_heat_then_place_in_recep": "Heat",
    "pick_cool_then_place_in_recep": "Cool",
    "pick_two_obj_and_place": "Pick two",
    "all": "All",
}
TASK_TYPE_ORDER = tuple(_TASK_TYPES)
"""Task types in the order of the literature's tables, the whole panel last."""


def task_type(name: str) -> str:
    """The short name of the literature (`Pick`, `Heat`, …); an unknown type as it is."""
    return _TASK_TYPES.get(name, name.replace("_", " "))


def task_type_id(label: str) -> str:
    """The inverse of `task_type`; a label that is not one of ours is taken as the id itself."""
    return next((name for name, short in _TASK_TYPES.items() if short == label), label)


def percent(value: float | None) -> str:
    """A rate as `61.5 %`; `–` where it is absent, `NaN` where it is not a number."""
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if math.isfinite(value) else "NaN"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits; `–` where it is absent or not finite in the log."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if math.isfinite(value) else "NaN"


def interval(rate: float | None, low: float | None, high: float | None) -> str:
    """`61.5 % (57.0–65.8)`."""
    if rate is None or low is None or high is None:
        return percent(rate)
    return f"{percent(rate)} ({100 * low:.1f}–{100 * high:.1f})"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`. Negative counts as 0."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    if total < 86_400:
        return f"{total // 3600} h {total % 3600 // 60:02d} min"
    return f"{total // 86_400} d {total % 86_400 // 3600} h"


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago, in words."""
    return "never" if moment is None else f"{duration((now - moment).total_seconds())} ago"


def clock(moment: datetime) -> str:
    """Local time of day, `14:03:59`."""
    return moment.astimezone().strftime("%H:%M:%S")


def byte_size(num_bytes: int) -> str:
    """`12.3 MB` with powers of 1000."""
    size = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def goal(observation: str) -> str | None:
    """The task sentence of a first observation: ALFWorld's task, WebShop's instruction; None where
    there is none.
    """
    found = _WISH.search(observation) or _GOAL.search(observation)
    return None if found is None else found.group(1).strip()


def eta_s(run: RunSummary, now: datetime) -> float | None:
    """Seconds until the last iteration at this attempt's average pace; None while unknown."""
    if run.status not in ("running", "stopping") or run.started_at is None or not run.iteration:
        return None
    elapsed = (now - run.started_at) / timedelta(seconds=1)
    return elapsed / run.iteration * max(0, run.num_iterations - run.iteration)


def progress(run: RunSummary) -> str:
    """`40 / 150`; `– / 150` before the first iteration."""
    return f"{'–' if run.iteration is None else run.iteration} / {run.num_iterations}"


def run_label(run: RunSummary) -> str:
    """`#12 sero demo · seed 0`, the one way a run is named in charts and tables."""
    return f"#{run.id} {run.name} · seed {run.seed}"


def branches_shown(shown: int, matching: int, total: int, noun: str) -> str:
    """`Showing 100 of 412 matching branches (12,431 in all)`."""
    text = f"Showing {shown:,} of {matching:,} {noun}"
    return text if matching == total else f"{text} that match ({total:,} in all)"


def code(text: str) -> str:
    """Text as an inline code span that nothing in it can end (CommonMark: a longer fence)."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text.replace(chr(10), ' ')} {fence}"


def plain(text: str) -> str:
    """Text of a model or an environment made inert for a Markdown label or caption."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~$:])", r"\\\1", text.replace("\n", " "))
