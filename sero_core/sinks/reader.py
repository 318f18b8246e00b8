"""Reading a spool while it grows, after its writer died, and for `sero verify`.

    reader = SpoolReader(folder, next_sequence)
    while (frame := reader.peek()) is not None:
        ...                                   # store it
        reader.accept(frame)

One record is in memory at a time, however long the database was away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sero_core.sinks.frames import HEADER_BYTES, MAGIC, Frame, Header, decode_header, digest_of
from sero_core.sinks.spool import segment_path, segments
from sero_core.types import SeroError


class SpoolDamaged(SeroError):
    """A record that was synced is not what was written: the disk or somebody changed it."""


@dataclass(frozen=True, slots=True)
class TornTail:
    """The incomplete end of a spool, which its writer never finished."""

    segment: Path
    offset: int
    num_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.num_bytes} bytes of an unfinished record at byte {self.offset} "
            f"of {self.segment.parent.name}/{self.segment.name}"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A record's header and where it starts."""

    header: Header
    segment: Path
    offset: int

    @property
    def end(self) -> int:
        return self.offset + HEADER_BYTES + self.header.length


class SpoolReader:
    """Follows the records from `next_sequence` on."""

    def __init__(self, folder: Path, next_sequence: int = 0) -> None:
        self._folder = folder
        self.next_sequence = next_sequence
        self._place: Place | None = None
        self._at: tuple[Path, int] | None = None

    def peek(self) -> Frame | None:
        """The next complete record; None where there is none (yet).

        Errors: `SpoolDamaged`, unless the record may still be in the writing.
        """
        place = self._find()
        if place is None:
            return None
        with place.segment.open("rb") as file:
            file.seek(place.offset + HEADER_BYTES)
            payload = file.read(place.header.length)
        found = digest_of(payload)
        if len(payload) == place.header.length and found == place.header.digest:
            self._place = place
            return Frame(place.header.sequence, found, payload)
        if self._is_followed(place):
            raise SpoolDamaged(
                f"record {place.header.sequence} at byte {place.offset} of {place.segment} hashes "
                f"to {found.hex()}, expected {place.header.digest.hex()}"
            )
        return None

    def accept(self, frame: Frame) -> None:
        """Move past the record that `peek` returned."""
        place = self._place
        if place is None or place.header.sequence != frame.sequence:
            raise ValueError(f"record {frame.sequence} is not the one that was read last")
        self.next_sequence += 1
        self._at, self._place = (place.segment, place.end), None

    def torn_tail(self) -> TornTail | None:
        """What stands after the last complete record. Call it once the writer has ended.

        Errors: `SpoolDamaged` when complete records follow.
        """
        found = segments(self._folder)
        if not found or self.peek() is not None:
            return None
        first, last = found[-1]
        if first > self.next_sequence:
            raise SpoolDamaged(
                f"record {self.next_sequence} is missing in {self._folder}: "
                f"the last segment starts with {first}"
            )
        offset = self._offset_in(last)
        rest = last.stat().st_size - offset
        if rest > 0 and _has_header_after(last, offset, self.next_sequence):
            raise SpoolDamaged(f"record {self.next_sequence} at byte {offset} of {last} is damaged")
        return TornTail(last, offset, rest) if rest > 0 else None

    def reclaim(self, keep_bytes: int, *, is_ended: bool = False) -> int:
        """Delete the oldest segments whose records were all accepted; returns how many.

        At most `keep_bytes` of accepted segments stay. The last segment stays while its writer may
        append; once `is_ended`, an empty one takes its place, whose name says how far the log came.
        """
        found = segments(self._folder)
        if is_ended and found and found[-1][0] < self.next_sequence:
            marker = segment_path(self._folder, self.next_sequence)
            marker.touch()
            found.append((self.next_sequence, marker))
        ends = [first for first, _ in found[1:]]
        done = [
            (path, path.stat().st_size)
            for (_, path), end in zip(found, ends, strict=False)
            if end <= self.next_sequence
        ]
        kept = sum(size for _, size in done)
        num_deleted = 0
        for path, size in done:
            if kept <= keep_bytes:
                break
            path.unlink()
            kept -= size
            num_deleted += 1
        return num_deleted

    def _find(self) -> Place | None:
        """The place of the next record, if its header is there."""
        if self._at is None:
            self._seek()
        if self._at is None:
            return None
        segment, offset = self._at
        place = read_header(segment, offset)
        if place is None:
            following = dict(segments(self._folder)).get(self.next_sequence)
            if following is None or following == segment:
                return None
            if segment.exists() and segment.stat().st_size > offset:
                raise SpoolDamaged(f"{segment} has bytes after its last record, at byte {offset}")
            place = read_header(following, 0)
        if place is not None and place.header.sequence != self.next_sequence:
            raise SpoolDamaged(
                f"{place.segment} has record {place.header.sequence} at byte {place.offset}, "
                f"expected {self.next_sequence}"
            )
        return place

    def _seek(self) -> None:
        """Go to the segment that holds `next_sequence` and pass the records before it."""
        at_or_before = [item for item in segments(self._folder) if item[0] <= self.next_sequence]
        if not at_or_before:
            return
        sequence, segment = at_or_before[-1]
        offset = 0
        while sequence < self.next_sequence:
            place = read_header(segment, offset)
            if place is None or place.header.sequence != sequence:
                raise SpoolDamaged(f"{segment}: no record {sequence} at byte {offset}")
            sequence, offset = sequence + 1, place.end
        self._at = (segment, offset)

    def _offset_in(self, segment: Path) -> int:
        return self._at[1] if self._at is not None and self._at[0] == segment else 0

    def _is_followed(self, place: Place) -> bool:
        """A later record exists, so this one was complete once."""
        is_last = segments(self._folder)[-1][1] == place.segment
        return not is_last or place.segment.stat().st_size > place.end


def cut(tail: TornTail) -> None:
    """Remove a torn tail for good."""
    os.truncate(tail.segment, tail.offset)


def read_header(segment: Path, offset: int) -> Place | None:
    """The header at `offset`; None when it is incomplete, damaged or the file is gone."""
    try:
        with segment.open("rb") as file:
            file.seek(offset)
            header = decode_header(file.read(HEADER_BYTES))
    except FileNotFoundError:
        return None
    return None if header is None else Place(header, segment, offset)


def scan(folder: Path) -> Iterator[Place]:
    """The headers of all records that are still on disk, in order. Payloads are not read."""
    for _, segment in segments(folder):
        offset = 0
        while (place := read_header(segment, offset)) is not None:
            yield place
            offset = place.end


def _has_header_after(segment: Path, offset: int, sequence: int) -> bool:
    """A later record's header stands somewhere after `offset`."""
    with segment.open("rb") as file:
        file.seek(offset)
        rest = file.read()
    start = rest.find(MAGIC, 1)
    while start != -1:
        header = decode_header(rest[start : start + HEADER_BYTES])
        if header is not None and header.sequence > sequence:
            return True
        start = rest.find(MAGIC, start + 1)
    return False
