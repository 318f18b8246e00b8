"""JSON files larger than memory, one element at a time, read with Python's own grammar.

The original reads its files with `json.load`, which also takes NaN; streaming parsers refuse it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from sero_core.envs.webshop.products import CatalogueError

BLOCK_BYTES: Final = 1 << 20
MAX_ELEMENT_BYTES: Final = 1 << 26
"""A single element longer than this is an error: a missing bracket would read the file whole."""

Progress = Callable[[int], None]
"""Told how many bytes of the file have been read so far."""


def stream_array(path: Path, progress: Progress | None = None) -> Iterator[object]:
    """The elements of a JSON array in order.

    Errors: `CatalogueError` naming the file and the element for anything but an array of objects.
    """
    with path.open("rb") as file:
        reader = _Reader(path, file, progress)
        reader.expect("[")
        number = 0
        while not reader.skip("]"):
            if number:
                reader.expect(",")
            yield reader.value(f"element {number}")
            number += 1
        reader.expect_end()


def stream_object(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, object]]:
    """The members of a JSON object in order. Errors: as `stream_array`."""
    with path.open("rb") as file:
        reader = _Reader(path, file, progress)
        reader.expect("{")
        number = 0
        while not reader.skip("}"):
            if number:
                reader.expect(",")
            key = reader.value(f"key {number}")
            if not isinstance(key, str):
                raise CatalogueError(f"{path}: key {number} is {key!r:.80}, expected a text")
            reader.expect(":")
            yield key, reader.value(f"the value of {key!r}")
            number += 1
        reader.expect_end()


class _Reader:
    def __init__(self, path: Path, file: IO[bytes], progress: Progress | None) -> None:
        self._path = path
        self._progress = progress
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._place = 0
        self._is_read = False

    def value(self, what: str) -> object:
        """The element that starts here: a text, an array or an object (others have no end mark)."""
        if self._peek() not in ('"', "[", "{"):
            raise self._error(f"{what} must be an object", self._peek())
        while True:
            try:
                value, self._place = self._scan(self._text, self._place)
                return value
            except json.JSONDecodeError as error:
                if len(self._text) - self._place > MAX_ELEMENT_BYTES:
                    raise self._error(f"{what} is longer than {MAX_ELEMENT_BYTES} bytes") from error
                if not self._more():
                    raise self._error(f"{what} is no JSON ({error.msg})") from error

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            raise self._error(f"expected {mark!r}", self._peek() or "the end of the file")

    def expect_end(self) -> None:
        if self._peek():
            raise self._error("expected the end of the file", self._peek())

    def skip(self, mark: str) -> bool:
        """Whether the next character that is no space is `mark`; it is skipped then."""
        if self._peek() != mark:
            return False
        self._place += 1
        return True

    def _peek(self) -> str:
        while True:
            while self._place < len(self._text) and self._text[self._place] in " \t\r\n":
                self._place += 1
            if self._place < len(self._text) or not self._more():
                return self._text[self._place : self._place + 1]

    def _more(self) -> bool:
        """Read as much again as is held, at least a block. False at the end of the file."""
        if self._is_read:
            return False
        rest = self._text[self._place :]
        block = self._file.read(max(BLOCK_BYTES, len(rest)))
        self._is_read = not block
        try:
            self._text = rest + self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise self._error(f"the file is no UTF-8 ({error.reason})") from error
        self._place = 0
        if self._progress is not None:
            self._progress(self._file.tell())
        return True

    def _error(self, what: str, got: str = "") -> CatalogueError:
        position = self._file.tell() - len(self._text) + self._place
        suffix = f", got {got!r}" if got else ""
        return CatalogueError(f"{self._path}: near byte {position}: {what}{suffix}")
