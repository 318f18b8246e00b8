"""`sero demo`: services, the demo run, and a display that follows it until Ctrl-C.

Everything happens in the main thread: it keeps the services alive and asks the API in between.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from backend.client import ApiError, SeroClient
from backend.schemas import RunDetail, RunSummary, SubmitRequest
from backend.supervisor.supervisor import Supervisor
from sero_core.config import load_config

PRESET = "sero_demo"
POLL_S = 1.0
TICK_S = 0.2
ENDED = ("succeeded", "failed", "cancelled", "skipped")


class Display(Protocol):
    """Shows a run while it trains."""

    def show(self, run: RunSummary, eta_s: float | None) -> None: ...

    def close(self) -> None: ...


def run_demo(
    supervisor: Supervisor,
    client: SeroClient,
    config: Path | None,
    dashboard_url: str,
    *,
    exit_when_done: bool,
    say: Callable[[str], None],
) -> bool:
    """Submit the demo run (or go on with an unfinished one) and follow it.

    Returns True when it succeeded; without `exit_when_done` only Ctrl-C ends it.
    """
    run, is_new = submit_or_continue(client, config)
    say(f"run {run.id} `{run.name}` {'was submitted' if is_new else 'goes on'}")
    say(f"dashboard: {dashboard_url}   (Ctrl-C stops everything)")
    display = make_display(sys.stdout)
    try:
        run = follow(supervisor, client, run.id, display)
    finally:
        display.close()
    say(f"run {run.id} {run.status}: {run.reason or ''}")
    if not exit_when_done:
        say(f"the services stay up, look around at {dashboard_url}; Ctrl-C stops everything")
        while True:
            supervisor.tick()
            time.sleep(TICK_S)
    return run.status == "succeeded"


def submit_or_continue(client: SeroClient, config: Path | None) -> tuple[RunSummary, bool]:
    """The unfinished run of the same name, else a new one, and whether it is new.

    The key makes the submit safe to repeat when the answer got lost.
    """
    if config is None:
        request = SubmitRequest(preset=PRESET)
    else:
        request = SubmitRequest(config=load_config(config).model_dump(mode="json"))
    wanted = client.validate_run(request)
    for run in client.runs(limit=50).items:
        if run.status not in ENDED and run.config_hash == wanted.config_hash:
            return run, False
    return client.submit_run(request, idempotency_key=f"demo-{uuid.uuid4()}"), True


def follow(supervisor: Supervisor, client: SeroClient, run_id: int, display: Display) -> RunDetail:
    """Keep the services alive and show the run until it ends; waits for an API that restarts."""
    clock = Eta()
    asked_at = 0.0
    while True:
        supervisor.tick()
        if time.monotonic() - asked_at >= POLL_S:
            asked_at = time.monotonic()
            try:
                run = client.run(run_id)
            except ApiError as error:
                if error.status not in (0, 500, 503):
                    raise
            else:
                display.show(run, clock.remaining_s(run, time.monotonic()))
                if run.status in ENDED:
                    return run
        time.sleep(TICK_S)


class Eta:
    """Seconds to go, from the pace since we started to watch."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def remaining_s(self, run: RunSummary, now: float) -> float | None:
        """None until two iterations were seen; `now` in seconds of a monotonic clock."""
        if run.iteration is None:
            return None
        if self._first is None or run.iteration < self._first[1]:
            self._first = (now, run.iteration)
        started, first = self._first
        if run.iteration == first:
            return None
        return (now - started) / (run.iteration - first) * (run.num_iterations - run.iteration)


def make_display(stream: TextIO) -> Display:
    """A progress bar on a terminal, else one line per iteration."""
    return BarDisplay(Console(file=stream)) if stream.isatty() else LineDisplay(stream)


class LineDisplay:
    """One line whenever the iteration or the status changes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: tuple[str, int | None] | None = None

    def show(self, run: RunSummary, eta_s: float | None) -> None:
        if (run.status, run.iteration) == self._last:
            return
        self._last = (run.status, run.iteration)
        done = 0 if run.iteration is None else run.iteration
        self._stream.write(
            f"{run.status}  iteration {done}/{run.num_iterations}  {facts(run)}  "
            f"left {duration(eta_s)}\n"
        )
        self._stream.flush()

    def close(self) -> None:
        return


class BarDisplay:
    """A progress bar with the run's numbers beside it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}  left {task.fields[left]}"),
            console=console,
        )
        self._task: TaskID | None = None

    def show(self, run: RunSummary, eta_s: float | None) -> None:
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(
                run.status, total=run.num_iterations, facts="", left="?"
            )
        self._progress.update(
            self._task,
            description=run.status,
            completed=run.iteration or 0,
            facts=facts(run),
            left=duration(eta_s),
        )

    def close(self) -> None:
        self._progress.stop()


def facts(run: RunSummary) -> str:
    """Success, evaluations, branches and effective depth; what is not known yet as `–`."""

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{value:.1%}"

    depth = "–" if run.effective_depth is None else f"{run.effective_depth:.2f}"
    return (
        f"success {percent(run.success)}  seen {percent(run.eval_valid_seen)}  "
        f"unseen {percent(run.eval_valid_unseen)}  branches {run.num_branches}  "
        f"effective depth {depth}"
    )


def duration(seconds: float | None) -> str:
    """`4 min 5 s`, `1 h 2 min`; `?` where it is not known."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
