"""Files of a shop on disk: lines with an offset table and numpy arrays, mapped read-only.

Mapped pages belong to the machine, not to the process: ten processes that open one shop hold it in
memory once. Nothing is pickled.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Array = NDArray[Any]


class MappedLines(Sequence[bytes]):
    """The records of a file, each from `offsets[i]` to `offsets[i + 1]`."""

    def __init__(self, path: Path, offsets: NDArray[np.int64]) -> None:
        self._offsets = offsets
        with path.open("rb") as file:
            is_empty = path.stat().st_size == 0
            self._map = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._map[self._offsets[place] : self._offsets[place + 1]]


class Decoded(Sequence[T]):
    """Records decoded on access; the latest `cache_size` stay decoded."""

    def __init__(
        self, records: Sequence[bytes], decode: Callable[[bytes], T], cache_size: int
    ) -> None:
        self._records = records
        self._decode = decode
        self._cache: dict[int, T] = {}
        self._cache_size = cache_size

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        found = self._cache.get(index)
        if found is None:
            found = self._decode(self._records[index])
            if len(self._cache) >= self._cache_size:
                del self._cache[next(iter(self._cache))]
            self._cache[index] = found
        return found


def map_lines(folder: Path, name: str) -> MappedLines:
    """The records that `write_lines` wrote."""
    return MappedLines(folder / name, map_array(folder / offsets_name(name)))


def map_array(path: Path) -> Array:
    """A numpy array, mapped read-only, as a plain ndarray (subclass calls cost microseconds)."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)


def write_lines(folder: Path, name: str, records: Iterable[bytes]) -> int:
    """Records one after the other, and their offsets; how many there are."""
    offsets = [0]
    with replacing(folder / name) as file:
        for record in records:
            file.write(record)
            offsets.append(offsets[-1] + len(record))
    write_array(folder / offsets_name(name), np.array(offsets, np.int64))
    return len(offsets) - 1


def write_array(path: Path, array: Array) -> None:
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)


def json_line(value: object) -> bytes:
    """One line of JSON; lone surrogates stay readable as escapes."""
    return (json.dumps(value, separators=(",", ":")) + "\n").encode()


def offsets_name(name: str) -> str:
    return f"{name}.offsets.npy"


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """The file appears under its name complete and on disk, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
