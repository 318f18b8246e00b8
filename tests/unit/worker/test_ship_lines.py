"""Reading a growing file line by line, and ids of branch and evaluate jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from backend.spool import LineReader, Target, clean_line, spool_folder
from sero_core.records import to_payload
from tests.support.records import iteration_record
from worker.child import describe, last_error
from worker.plan import newest_checkpoint
from worker.ship import for_job


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LineReader(path)
    assert reader.peek(10) == []
    path.write_bytes(b"one\ntwo\nthr")
    lines = reader.peek(10)
    assert lines == [b"one\n", b"two\n"]
    assert reader.peek(10) == lines  # not accepted yet
    reader.accept(lines[:1])
    assert reader.peek(10) == [b"two\n"]
    reader.accept(lines[1:])
    assert reader.peek(10) == []
    with path.open("ab") as file:
        file.write(b"ee\nfour\n")
    assert reader.peek(1) == [b"three\n"]


def test_reading_goes_on_after_the_lines_that_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"stored\n" * 2500 + b"new\nunfinished")
    reader = LineReader(path)
    reader.skip(2500)
    assert reader.peek(5) == [b"new\n"]
    assert reader.peek(5, is_final=True) == [b"new\n", b"unfinished"]
    reader.skip(2)
    assert reader.peek(5, is_final=True) == []


def test_of_a_progress_bar_only_the_last_state_is_stored() -> None:
    assert clean_line(b"loading\r 10 %\r100 %\n") == "100 %"
    assert clean_line(b"caf\xe9 \xff\n") == "caf\ufffd \ufffd"
    assert len(clean_line(b"x" * 10_000)) == 4000


def test_a_folder_says_where_its_records_belong(tmp_path: Path) -> None:
    folder = spool_folder(tmp_path, 9, 2)
    target = Target(1, 9, 2, iteration=40)
    folder.create(target)
    assert spool_folder(tmp_path, 9, 2).target == target


def test_training_lines_pass_and_branch_jobs_get_ids_of_their_own() -> None:
    line = to_payload(iteration_record(3))
    assert for_job(line, Target(1, 2, 1)) is line
    moved = for_job(line, Target(1, 9, 1, iteration=40))
    assert moved.iteration == 40
    assert [e.episode_id for e in moved.episodes] == [f"j9{e.episode_id}" for e in line.episodes]
    assert [b.branch_id for b in moved.branches] == [f"j9{b.branch_id}" for b in line.branches]
    assert {b.episode_id for b in moved.branches} <= {e.episode_id for e in moved.episodes}


def test_newest_checkpoint_counts_only_complete_ones(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == -1
    for name, is_complete in (("00005", True), ("00010", True), ("00015", False)):
        folder = tmp_path / "checkpoints" / f"iteration-{name}"
        folder.mkdir(parents=True)
        if is_complete:
            (folder / "state.json").touch()
    (tmp_path / "checkpoints" / ".iteration-00020.tmp").mkdir()
    assert newest_checkpoint(tmp_path) == 10


def test_reasons_read_as_sentences(tmp_path: Path) -> None:
    assert describe(3) == "exit status 3"
    assert describe(-9) == "signal 9 (SIGKILL)"
    log = tmp_path / "log.txt"
    assert last_error(log) == ""
    log.write_text("iteration 1/4\nerror: policy.path: no such folder\n\n")
    assert last_error(log) == "policy.path: no such folder"


def test_the_worker_loads_no_torch() -> None:
    code = "import sys, worker.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
