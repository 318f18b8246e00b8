"""Unpack an archive of games without trusting it: zip, or tar with any of Python's compressions."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn

from sero_core.envs.alfworld.tasks import DataError

_BROKEN = (EOFError, OSError, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error)


def unpack(archive: Path, folder: Path, wanted: Collection[str]) -> int:
    """Write the archive's files named in `wanted` below `folder`; returns how many.

    Errors: `DataError` for something that is not an archive, one that is cut off or damaged, and
    one that holds a name that leads outside, a link or a device (nothing of it is followed).
    """
    if archive.is_dir():
        raise DataError(
            f"{archive} is a folder, expected an archive; games that are unpacked already need "
            "only env.data_root"
        )
    if not archive.is_file():
        raise DataError(f"archive {archive} does not exist")
    count = 0
    try:
        for name, stream in _members(archive):
            path = _safe(archive, name)
            if path.name not in wanted:
                continue
            target = folder.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with stream, target.open("xb") as file:
                shutil.copyfileobj(stream, file)
            count += 1
    except _BROKEN as error:
        reason = str(error).splitlines()[0].rstrip(":") if str(error) else type(error).__name__
        raise DataError(
            f"archive {archive} cannot be read to its end: {reason}; is the download complete?"
        ) from error
    return count


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    elif archive.suffix == ".zip":
        raise DataError(f"{archive} is no complete zip archive; is the download complete?")
    else:
        yield from _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                _refuse(archive, info.filename, "a link")
            if not info.is_dir():
                yield info.filename, opened.open(info)


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            if member.isdir():
                continue
            stream = opened.extractfile(member) if member.isreg() else None
            if stream is None:
                _refuse(archive, member.name, "a link or a device")
            yield member.name, stream


def _safe(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        _refuse(archive, name, "a path outside the archive")
    return path


def _refuse(archive: Path, name: str, what: str) -> NoReturn:
    raise DataError(f"archive {archive} holds {name!r}, {what}; nothing was installed")
