"""The files of runs: how large they are, and deleting them.

A folder is renamed before it is deleted, so that a crash in between leaves no half of a checkpoint
that looks like a whole one; what is left under such a name goes with the next deletion.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path

from sqlalchemy import Connection, text

from backend.db.queries.control import NotPossible
from backend.settings import Settings

TRASH = ".trash-"
_CHECKPOINT = re.compile(r"^iteration-(?P<iteration>\d+)$")


def folder_bytes(folder: Path) -> int:
    """Sum of the file sizes below; 0 where there is nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except FileNotFoundError:  # a checkpoint that the trainer replaced meanwhile
                continue
    return total


def delete_folder(folder: Path) -> int:
    """Returns the bytes that it had. Errors: OSError."""
    for left in folder.parent.glob(f"{TRASH}*"):
        shutil.rmtree(left, ignore_errors=True)
    if not folder.exists():
        return 0
    num_bytes = folder_bytes(folder)
    trash = folder.with_name(f"{TRASH}{uuid.uuid4().hex}")
    folder.rename(trash)
    shutil.rmtree(trash)
    return num_bytes


def checkpoints_on_disk(settings: Settings, run_id: int) -> dict[int, Path]:
    """Iteration -> folder of a run's complete checkpoints, oldest first."""
    found: dict[int, Path] = {}
    for path in sorted((settings.run_dir(run_id) / "checkpoints").glob("iteration-*/state.json")):
        name = _CHECKPOINT.match(path.parent.name)
        if name is not None:
            found[int(name["iteration"])] = path.parent
    return dict(sorted(found.items()))


def old_checkpoints(settings: Settings, run_id: int, keep_newest: int) -> list[Path]:
    """All but the newest ones."""
    folders = list(checkpoints_on_disk(settings, run_id).values())
    return folders[: max(0, len(folders) - keep_newest)]


def require_idle(connection: Connection, run_id: int) -> None:
    """Lock the run's jobs. Errors: `NotPossible` while one runs (it may read a checkpoint)."""
    rows = connection.execute(
        text("SELECT id, state FROM jobs WHERE run_id = :id FOR UPDATE"), {"id": run_id}
    )
    for row in rows:
        if row.state == "running":
            raise NotPossible(f"job {row.id} of run {run_id} is running; stop it first")
