"""The spool: whatever point a writer dies at, whole records are read and the rest is cut."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sero_core.records import from_line
from sero_core.sinks import SPOOL_VARIABLE, open_log
from sero_core.sinks.frames import HEADER_BYTES, decode_header, encode
from sero_core.sinks.jsonl import JsonlSink
from sero_core.sinks.log import read_log
from sero_core.sinks.reader import SpoolDamaged, SpoolReader, cut, scan
from sero_core.sinks.spool import SpoolSink, has_writer, segments
from sero_core.types import IterationRecord, SeroError

SAME_FOLDER = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def record(iteration: int) -> IterationRecord:
    return IterationRecord(iteration, {"x": float(iteration)}, (), (), (), None)


def write(folder: Path, count: int, segment_bytes: int = 2**20) -> None:
    sink = SpoolSink(folder, segment_bytes)
    for iteration in range(count):
        sink.write(record(iteration))
    sink.close()


def read_all(folder: Path, next_sequence: int = 0) -> list[int]:
    reader = SpoolReader(folder, next_sequence)
    found: list[int] = []
    while (frame := reader.peek()) is not None:
        payload = from_line(frame.payload.decode())
        assert payload.iteration == frame.sequence
        found.append(payload.iteration)
        reader.accept(frame)
    return found


@pytest.mark.parametrize("segment_bytes", [1, 400, 2**20])
def test_records_come_back_in_order_from_any_start(tmp_path: Path, segment_bytes: int) -> None:
    write(tmp_path, 7, segment_bytes)
    assert (len(segments(tmp_path)) == 1) == (segment_bytes == 2**20)
    for start in range(8):
        assert read_all(tmp_path, start) == list(range(start, 7))
    assert [place.header.sequence for place in scan(tmp_path)] == list(range(7))
    assert SpoolReader(tmp_path, 7).torn_tail() is None


def test_a_reader_follows_a_living_writer(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path)
    assert reader.peek() is None
    sink = SpoolSink(tmp_path, 300)
    assert has_writer(tmp_path)
    for iteration in range(5):
        assert reader.peek() is None
        sink.write(record(iteration))
        frame = reader.peek()
        assert frame is not None
        assert frame == reader.peek()  # not accepted yet
        reader.accept(frame)
        with pytest.raises(ValueError, match="not the one that was read last"):
            reader.accept(frame)
    sink.close()
    assert not has_writer(tmp_path)


@SAME_FOLDER
@given(st.data())
def test_wherever_the_writer_dies_whole_records_are_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    write(folder, 4, 500)
    last = segments(folder)[-1][1]
    ends = [place.end for place in scan(folder) if place.segment == last]
    size = data.draw(st.integers(0, last.stat().st_size), label="size")
    with last.open("r+b") as file:
        file.truncate(size)
    num_whole = 4 - sum(end > size for end in ends)
    assert read_all(folder) == list(range(num_whole))
    reader = SpoolReader(folder, num_whole)
    tail = reader.torn_tail()
    whole_bytes = max((end for end in ends if end <= size), default=0)
    if tail is None:
        assert size == whole_bytes
    else:
        assert (tail.offset, tail.num_bytes) == (whole_bytes, size - whole_bytes)
        cut(tail)
        assert last.stat().st_size == whole_bytes
        assert SpoolReader(folder, num_whole).torn_tail() is None


@SAME_FOLDER
@given(st.data())
def test_a_flipped_bit_never_passes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In the last record it is a torn tail, before it damage; no changed record is ever read."""
    folder = tmp_path_factory.mktemp("spool")
    write(folder, 3)
    path = segments(folder)[0][1]
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1), label="byte")
    content[place] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    hit = next(p.header.sequence for p in scan(folder) if place < p.end)
    path.write_bytes(content)
    reader = SpoolReader(folder)
    found: list[int] = []

    def read_to_the_end() -> None:
        while (frame := reader.peek()) is not None:
            found.append(frame.sequence)
            reader.accept(frame)
        if reader.torn_tail() is not None and hit < 2:
            raise AssertionError("damage in the middle was taken for a torn tail")

    if hit < 2:
        with pytest.raises(SpoolDamaged):
            read_to_the_end()
    else:
        read_to_the_end()
    assert found == list(range(hit))


def test_accepted_segments_are_reclaimed_and_the_place_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 6, 1)
    reader = SpoolReader(tmp_path)
    for _ in range(4):
        frame = reader.peek()
        assert frame is not None
        reader.accept(frame)
    size = segments(tmp_path)[0][1].stat().st_size
    assert reader.reclaim(2 * size) == 2
    assert [first for first, _ in segments(tmp_path)] == [2, 3, 4, 5]
    assert reader.reclaim(0) == 2
    assert read_all(tmp_path, 4) == [4, 5]
    ended = SpoolReader(tmp_path, 6)
    assert ended.reclaim(0) == 1  # the last segment stays while a writer may append to it
    assert ended.reclaim(0, is_ended=True) == 1
    assert [(first, path.stat().st_size) for first, path in segments(tmp_path)] == [(6, 0)]
    assert ended.torn_tail() is None


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 5, 1)
    segments(tmp_path)[2][1].unlink()
    reader = SpoolReader(tmp_path)
    for _ in range(2):
        frame = reader.peek()
        assert frame is not None
        reader.accept(frame)
    assert reader.peek() is None
    with pytest.raises(SpoolDamaged, match="record 2 is missing"):
        reader.torn_tail()


def test_one_process_writes_a_folder(tmp_path: Path) -> None:
    first = SpoolSink(tmp_path)
    with pytest.raises(SeroError, match="another process writes"):
        SpoolSink(tmp_path)
    first.write(record(0))
    first.close()
    with pytest.raises(SeroError, match="already holds the log"):
        SpoolSink(tmp_path)


def test_the_environment_chooses_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPOOL_VARIABLE, raising=False)
    log = open_log(tmp_path, None)
    assert isinstance(log, JsonlSink)
    log.close()
    monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / "spool"))
    log = open_log(tmp_path, None)
    assert isinstance(log, SpoolSink)
    log.close()


FILL = """
import json, sys
from pathlib import Path
from sero_core.sinks import open_log
from sero_core.types import IterationRecord
log = open_log(Path(sys.argv[1]), None)
written = 0
try:
    while True:
        log.write(IterationRecord(written, {"x": 1.0, "y" * 3000: 2.0}, (), (), (), None))
        written += 1
except OSError as error:
    print(json.dumps([written, error.errno]))
"""


@pytest.mark.parametrize("is_spool", [True, False])
def test_a_full_disk_leaves_whole_records_only(tmp_path: Path, is_spool: bool) -> None:
    """A limit on the file's size stands for a quota: the kernel cuts a write in the middle."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    environment = {SPOOL_VARIABLE: str(tmp_path)} if is_spool else {}
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)],
        env=os.environ | environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=True,
    )
    written, number = json.loads(done.stdout)
    assert (written, number) == (6, 27)
    if is_spool:
        assert read_all(tmp_path) == list(range(6))
        assert SpoolReader(tmp_path, 6).torn_tail() is None
    else:
        lines = (tmp_path / "records.jsonl").read_text().splitlines()
        assert [from_line(line).iteration for line in lines] == list(range(6))


def test_a_header_says_what_it_is() -> None:
    data = encode(7, b"payload")
    header = decode_header(data)
    assert header is not None
    assert (header.sequence, header.length) == (7, 7)
    assert decode_header(data[: HEADER_BYTES - 1]) is None
    assert decode_header(b"X" + data[1:]) is None


def test_a_folder_is_read_in_either_form(tmp_path: Path) -> None:
    with pytest.raises(SeroError, match=r"holds no records.jsonl and no spool"):
        list(read_log(tmp_path))
    write(tmp_path / "spool" / "job-9-attempt-1", 5)
    write(tmp_path / "spool" / "job-10-attempt-1", 2)
    resumed = SpoolSink(tmp_path / "spool" / "job-9-attempt-2")
    for iteration in (3, 4, 5):
        resumed.write(IterationRecord(iteration, {"x": -1.0}, (), (), (), None))
    resumed.close()
    found = [(payload.iteration, payload.metrics["x"]) for payload in read_log(tmp_path)]
    assert found == [(0, 0.0), (1, 1.0), (2, 2.0), (3, -1.0), (4, -1.0), (5, -1.0)]
    log = JsonlSink(tmp_path, None)
    log.write(record(7))
    log.close()
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"unfinished')
    assert [payload.iteration for payload in read_log(tmp_path)] == [7]
