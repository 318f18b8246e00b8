"""Directories of the services: private ones, and a place for sockets whose path is short enough."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from backend.supervisor.process import Account, ServiceError

MAX_SOCKET_PATH = 107  # bytes in sockaddr_un.sun_path, without the final zero


def private_dir(path: Path, account: Account | None) -> None:
    """Make `path` with mode 0700, owned by `account` (or by us). Parents get the default mode.

    Errors: `ServiceError` when it exists and belongs to somebody else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    owner = os.geteuid() if account is None else account.uid
    found = path.lstat()
    if found.st_uid not in (owner, os.geteuid()) or path.is_symlink():
        raise ServiceError(f"{path} belongs to user {found.st_uid}, expected {owner}")
    if account is not None:
        os.chown(path, account.uid, account.gid)
    path.chmod(0o700)


def socket_dir(wanted: Path, name: str) -> Path:
    """`wanted`, or a short folder under /tmp when `wanted/name` is too long for a socket."""
    if len(os.fsencode(wanted / name)) <= MAX_SOCKET_PATH:
        return wanted
    digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"sero-{digest}"
