"""Which code made a run: the commit, and whether there were changes on top."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

CODE_FILE = "code.json"
PACKAGES = ("sero-lab", "torch", "transformers", "numpy")
GIT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Code:
    """`commit` is None outside of a git checkout. `packages`: version of each that is installed."""

    commit: str | None
    is_dirty: bool | None
    packages: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@lru_cache(maxsize=1)
def current_code() -> Code:
    """The code of this process. `$SERO_GIT_COMMIT` names the commit of an image without git."""
    packages: dict[str, str] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    if commit := os.environ.get("SERO_GIT_COMMIT"):
        return Code(commit, False, packages)
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return Code(None, None, packages)
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return Code(commit or None, None if changes is None else bool(changes), packages)


def _git(root: Path, *args: str) -> str | None:
    """What git says; None where it is missing or refuses (a checkout of another user)."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, timeout=GIT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
