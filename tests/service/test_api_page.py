"""docs/api.md names every operation of the application, as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_script_writes() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api_table.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=False)
    assert done.returncode == 0, "run `python scripts/api_table.py`"
