"""Compiled games in memory and on disk.

On disk a compiled game is one JSON file named by the content hash of the game file and the engine
version. It is written to a temporary name and moved into place, so several processes may fill one
directory. A damaged entry is compiled again.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sero_core.envs.alfworld.codec import decode, encode
from sero_core.envs.alfworld.compiler import compile_game, content_hash
from sero_core.envs.alfworld.game import ENGINE_VERSION, Game

logger = logging.getLogger(__name__)

GAME_FILE: Final = "game.tw-pddl"
MAX_GAMES_IN_MEMORY: Final = 256

_memory: OrderedDict[str, Game] = OrderedDict()


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What `compile_directory` did. `failures` are (file, reason) of games not compiled."""

    num_compiled: int
    num_cached: int
    failures: tuple[tuple[str, str], ...]


def default_directory() -> Path:
    """`$SERO_CACHE/alfworld`, or `~/.cache/sero/alfworld`."""
    root = os.environ.get("SERO_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "sero") / "alfworld"


def read_checked(path: Path, expected_hash: str) -> bytes:
    """The bytes of a game file. Raises ValueError when they are not those with `expected_hash`."""
    raw = path.read_bytes()
    found = content_hash(raw)
    if found != expected_hash:
        raise ValueError(
            f"{path} changed since it was listed: sha256 is {found}, expected {expected_hash}"
        )
    return raw


def load_game(path: Path, expected_hash: str, directory: Path | None = None) -> Game:
    """The compiled game of a file: from memory, else from disk, else compiled now and stored.

    Raises ValueError when the file is not the one with `expected_hash` or not a game, and
    `UnsupportedGame` when only the reference engine can play it.
    """
    raw = read_checked(path, expected_hash)
    game = _memory.get(expected_hash)
    if game is None:
        game = _from_disk(expected_hash, directory or default_directory())
    if game is None:
        game = compile_game(raw)
        _to_disk(game, directory or default_directory())
    _memory[expected_hash] = game
    _memory.move_to_end(expected_hash)
    while len(_memory) > MAX_GAMES_IN_MEMORY:
        _memory.popitem(last=False)
    return game


def clear_memory() -> None:
    """Forget the games held in memory (benchmarks measure the disk path with this)."""
    _memory.clear()


def compile_directory(
    root: Path,
    directory: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CompileReport:
    """Compile every game file under `root` into the cache. `progress(done, total)` follows each."""
    target = directory or default_directory()
    files = sorted(root.rglob(GAME_FILE))
    if not files:
        raise FileNotFoundError(f"no {GAME_FILE} under {root}")
    num_compiled = num_cached = 0
    failures: list[tuple[str, str]] = []
    for done, path in enumerate(files, start=1):
        raw = path.read_bytes()
        if _from_disk(content_hash(raw), target) is not None:
            num_cached += 1
        else:
            try:
                _to_disk(compile_game(raw), target)
                num_compiled += 1
            except ValueError as error:  # UnsupportedGame is one: counted and named, not fatal
                failures.append((str(path), str(error)))
        if progress is not None:
            progress(done, len(files))
    return CompileReport(num_compiled, num_cached, tuple(failures))


def _entry(content: str, directory: Path) -> Path:
    return directory / f"{content}.v{ENGINE_VERSION}.json"


def _from_disk(content: str, directory: Path) -> Game | None:
    path = _entry(content, directory)
    try:
        stored = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return decode(stored, content)
    except ValueError as error:
        logger.warning("compiled game %s is damaged and is compiled again: %s", path, error)
        return None


def _to_disk(game: Game, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".new-", suffix=".json")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(encode(game))
        os.replace(temporary, _entry(game.content_hash, directory))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
