"""Are the checkpoints whole, and of the weights that the database names?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from sqlalchemy import Connection, text

from backend.retention import checkpoints_on_disk
from backend.settings import Settings
from backend.verify.finding import Finding

WEIGHTS = "model*.safetensors"


def check_checkpoints(connection: Connection, settings: Settings, run_id: int) -> list[Finding]:
    """One finding per checkpoint on disk, and one for each that should be there.

    Older ones may be gone: a run keeps the newest few, and people delete some. A graceful stop
    writes one that no record names; its manifest is checked all the same.
    """
    named = {
        row.iteration: row.weights_hash
        for row in connection.execute(
            text("SELECT iteration, weights_hash FROM checkpoints WHERE run_id = :run_id"),
            {"run_id": run_id},
        )
    }
    on_disk = checkpoints_on_disk(settings, run_id)
    findings = [
        _check(folder, iteration, named.get(iteration)) for iteration, folder in on_disk.items()
    ]
    if not _were_deleted(connection, run_id):
        oldest = min(on_disk, default=max(named, default=0))
        findings += [
            Finding(_name(iteration), "on disk", "no complete checkpoint", False)
            for iteration in sorted(named)
            if iteration >= oldest and iteration not in on_disk
        ]
    return findings


def _check(folder: Path, iteration: int, weights_hash: str | None) -> Finding:
    """Every file hashes to what `state.json` says, and the weights to what the database says."""
    try:
        state = json.loads((folder / "state.json").read_text())
        files: dict[str, str] = state["files"]
        found_iteration: int = state["iteration"]
    except (ValueError, KeyError, TypeError) as error:
        return Finding(
            _name(iteration), "a manifest", "state.json cannot be read", False, f"{error}"
        )
    whole = hashlib.sha256()
    problems: list[str] = []
    for name, expected in sorted(files.items()):
        got = _sha256(folder / name)
        if got != expected:
            problems.append(f"{name}: {got[:12]}, expected {expected[:12]}")
    for path in sorted(folder.glob(WEIGHTS)):
        with path.open("rb") as file:
            while block := file.read(2**20):
                whole.update(block)
    if found_iteration != iteration:
        problems.append(f"state.json is of iteration {found_iteration}")
    if weights_hash is not None and whole.hexdigest() != weights_hash:
        problems.append(f"weights {whole.hexdigest()[:12]}, the database has {weights_hash[:12]}")
    num_bad = len(problems)
    found = f"{len(files)} files" if not num_bad else f"{num_bad} differ"
    return Finding(_name(iteration), f"{len(files)} files", found, not num_bad, "; ".join(problems))


def _were_deleted(connection: Connection, run_id: int) -> bool:
    return bool(
        connection.execute(
            text(
                "SELECT EXISTS (SELECT FROM events "
                "WHERE run_id = :run_id AND kind = 'run.checkpoints_deleted')"
            ),
            {"run_id": run_id},
        ).scalar_one()
    )


def _name(iteration: int) -> str:
    return f"checkpoint of iteration {iteration}"


def _sha256(path: Path) -> str:
    if not path.is_file():
        return "no file"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
