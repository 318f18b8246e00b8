"""ALFWorld's official games: fetch or unpack the release, check every game, then put it in place.

What is in place is whole: a split is unpacked and checked in a temporary folder of the same disk
and moved with one rename.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from sero_core.envs.alfworld.archive import unpack
from sero_core.envs.alfworld.tasks import MARKS, RELEASE_FOLDER, DataError, scan
from sero_core.types import Task

_REACH_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a split of the release holds. `digest` None: its contents were never seen here."""

    num_games: int
    digest: str | None


RELEASE: Final[Mapping[str, Expected]] = {
    "train": Expected(3553, "6ab93f3cee1461d0cd332115cf904dd7ebc8ee19696ab669796edbe7c00c17a4"),
    "valid_seen": Expected(140, "d1a35435d948fea34f5869e267cac6d00467076514b18bd630d4db28a204c2a6"),
    "valid_unseen": Expected(134, None),
}
"""Playable games and `split_digest` of release json_2.1.1. The digest of valid_unseen is unknown:
only its count is checked."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split after an installation or a check. `skipped` counts unplayable games by reason."""

    split: str
    state: Literal["installed", "already there", "absent"]
    num_games: int
    skipped: dict[str, int]
    digest: str
    is_digest_checked: bool


def default_root() -> Path:
    """`$ALFWORLD_DATA`, else the folder that the alfworld package uses itself."""
    root = os.environ.get("ALFWORLD_DATA")
    return Path(root) if root else Path.home() / ".cache" / "alfworld"


def split_digest(tasks: Sequence[Task]) -> str:
    """SHA-256 over the lines `task id NUL sha256 of the game file LF`, sorted by task id."""
    hasher = hashlib.sha256()
    for task in sorted(tasks, key=lambda task: task.task_id):
        hasher.update(f"{task.task_id}\0{task.content_hash}\n".encode())
    return hasher.hexdigest()


def check_release(root: Path, expected: Mapping[str, Expected] = RELEASE) -> list[SplitReport]:
    """Check every split below a data root (with or without `json_2.1.1`); a split without a folder
    is reported as absent.

    Errors: `DataError` for no split at all, truncated games, a wrong count or a wrong digest.
    """
    reports = [_check(root, split, want, "already there") for split, want in expected.items()]
    if all(report.state == "absent" for report in reports):
        raise DataError(f"no split of {', '.join(expected)} in {root}: is it the data root?")
    return reports


def install(
    archive: Path, root: Path, expected: Mapping[str, Expected] = RELEASE
) -> list[SplitReport]:
    """Unpack the splits of an archive to `root/json_2.1.1`. Splits that it lacks are absent.

    A split that is there already stays as it is if it is complete.
    Errors: `DataError` for an archive that is damaged, unsafe or holds no split, a split that is
    not complete or not the release's, another content in its place; then nothing is installed.
    """
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=root, prefix=".unpacking-"))
    try:
        unpack(archive, temporary, MARKS)
        source = _release_folder(archive, temporary, expected)
        try:
            found = [_check(source, split, want, "installed") for split, want in expected.items()]
        except DataError as error:
            raise DataError(f"archive {archive}: {error}") from error
        target = root / RELEASE_FOLDER
        there = {
            report.split: _check(target, report.split, expected[report.split], "already there")
            for report in found
            if (target / report.split).exists()
        }
        target.mkdir(exist_ok=True)
        for report in found:
            if report.state == "installed" and report.split not in there:
                (source / report.split).rename(target / report.split)
        return [there.get(report.split, report) for report in found]
    finally:
        shutil.rmtree(temporary)


class _Downloader(Protocol):
    """What is used of the alfworld package's own download script."""

    TW_PDDL_FILES_URL: str

    def download(self, url: str, dst: str, force: bool = False) -> str: ...


def fetch(folder: Path, url: str | None = None) -> Path:
    """Download the archive of game files with the alfworld package's downloader; its path.

    `url` defaults to the one that the package names. A partial download is resumed.
    Errors: `DataError` if the package is not installed or the server cannot be reached.
    """
    os.environ.setdefault("ALFWORLD_DATA", str(folder))  # else importing alfworld makes a folder
    downloader = _load_downloader()
    address = url or downloader.TW_PDDL_FILES_URL
    try:
        request = urllib.request.Request(address, method="HEAD")
        with suppress(urllib.error.HTTPError):  # reached; the download itself says what is wrong
            urllib.request.urlopen(request, timeout=_REACH_S).close()
        return Path(downloader.download(address, dst=str(folder)))
    except (OSError, TypeError) as error:  # TypeError: the server does not say how long the file is
        raise DataError(
            f"cannot download {address}: {error}. Download it on another machine and pass "
            "--from FILE"
        ) from error


def _load_downloader() -> _Downloader:
    """The package installs its downloader as a script only, so it is loaded from its file."""
    try:
        files = importlib.metadata.files("alfworld") or []
    except importlib.metadata.PackageNotFoundError:
        raise DataError(
            "the alfworld package, whose downloader is used, is not installed: "
            "pip install 'sero-lab[alfworld]', or pass --from FILE"
        ) from None
    paths = [str(file.locate()) for file in files if file.name == "alfworld-download"]
    if not paths:
        raise DataError("this version of the alfworld package has no alfworld-download script")
    loader = importlib.machinery.SourceFileLoader("alfworld_download", paths[0])
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return cast(_Downloader, module)


def _release_folder(archive: Path, folder: Path, splits: Mapping[str, Expected]) -> Path:
    """The one folder of an unpacked archive that holds split folders."""
    parents = {path.parent for split in splits for path in folder.rglob(split) if path.is_dir()}
    if len(parents) != 1:
        there = sorted(path.name for path in folder.iterdir())[:5]
        raise DataError(
            f"archive {archive}: expected one folder with {', '.join(splits)}, found "
            f"{len(parents)}; at its top are {there}"
        )
    return parents.pop()


def _check(
    root: Path,
    split: str,
    expected: Expected,
    state: Literal["installed", "already there"],
) -> SplitReport:
    if not any((root / part / split).is_dir() for part in ("", RELEASE_FOLDER)):
        return SplitReport(split, "absent", 0, {}, "", False)
    listing = scan(root, split)
    count, digest = len(listing.tasks), split_digest(listing.tasks)
    skipped = ", ".join(f"{number} {reason}" for reason, number in sorted(listing.skipped.items()))
    if count != expected.num_games:
        raise DataError(
            f"split {split} of {root} has {count} playable games, expected {expected.num_games}"
            f"{f'; skipped: {skipped}' if skipped else ''}. Was it unpacked to the end?"
        )
    if expected.digest is not None and digest != expected.digest:
        raise DataError(
            f"split {split} of {root} has digest {digest}, expected {expected.digest}: these are "
            "not the games of release json_2.1.1. To play them all the same, unpack them yourself "
            "and set env.data_root"
        )
    return SplitReport(split, state, count, listing.skipped, digest, expected.digest is not None)
