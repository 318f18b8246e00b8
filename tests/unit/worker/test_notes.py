"""What a worker's processes leave for each other: which job runs where, and if it still does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from worker.notes import Notes, start_of

HOLD = """
import sys, time
from pathlib import Path
from worker.notes import Notes
with Notes(Path(sys.argv[1]), "w").running(7, 2):
    print("running", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_is_seen_and_an_ended_one_leaves_no_note(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "w")
    notes.begin()
    with notes.running(3, 1):
        [mine] = notes.running_jobs()
        assert (mine.job_id, mine.attempt, mine.is_process_alive) == (3, 1, True)
    assert notes.running_jobs() == []
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert [(job.job_id, job.is_process_alive) for job in notes.running_jobs()] == [(7, True)]
    process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while start_of(process.pid) != "" and time.monotonic() < deadline:
        time.sleep(0.01)  # a zombie counts as gone, though nobody has waited for it yet
    [killed] = notes.running_jobs()
    assert not killed.is_process_alive
    process.wait()
    process.stdout.close()


def test_a_number_that_comes_again_is_another_process(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "w")
    notes.begin()
    (tmp_path / "workers" / "w" / "job-1-1").write_text(f"{os.getpid()} 1")
    assert [job.is_process_alive for job in notes.running_jobs()] == [False]
