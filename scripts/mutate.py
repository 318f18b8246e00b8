"""Put each trap of docs/correctness.md back and see that its test turns red: `make mutate`.

    python scripts/mutate.py [--only T16 S02 ...] [--list]

A mutation is a replacement in one file (`tests/traps/mutations.toml`); it must fit exactly once. It
is made in a copy of the repository, so that nothing of yours changes. A test that stays green means
that it does not guard its trap, and the exit code is 1. That the tests are green without mutation
is what `make test` shows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MUTATIONS = ROOT / "tests" / "traps" / "mutations.toml"
COPIED = ("sero_core", "backend", "worker", "tests", "configs", "migrations", "docs", "scripts")
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "-W", "ignore")
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Mutation:
    """`what` in words; `old` in `file` becomes `new`; then `test` (a file or file::name) is red."""

    trap: str
    what: str
    file: str
    old: str
    new: str
    test: str


def load() -> list[Mutation]:
    """Errors: TypeError for a mutation with a wrong or missing key."""
    return [Mutation(**row) for row in tomllib.loads(MUTATIONS.read_text())["mutation"]]


def problem(mutation: Mutation, root: Path = ROOT) -> str | None:
    """Why a mutation cannot be made, or None."""
    path = root / mutation.file
    if not path.is_file():
        return f"there is no file {mutation.file}"
    count = path.read_text(encoding="utf-8").count(mutation.old)
    if count != 1:
        return f"its text occurs {count} times in {mutation.file}, expected once"
    if not (root / mutation.test.partition("::")[0]).is_file():
        return f"there is no test {mutation.test}"
    return None


def is_red(mutation: Mutation, copy: Path) -> tuple[bool, str]:
    """Whether the test fails with the mutation, and the last line that it said."""
    path = copy / mutation.file
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *PYTEST, mutation.test],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        path.write_text(original, encoding="utf-8")
    said = [
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))
    ]
    # 1: tests failed. Anything else (no test found, an error of the command) proves nothing.
    return done.returncode == 1, said[-1] if said else (done.stdout + done.stderr)[-200:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="traps, such as T16 S02")
    parser.add_argument("--list", action="store_true", help="say what would be done")
    options = parser.parse_args()
    mutations = [m for m in load() if not options.only or m.trap in options.only]
    impossible = [(m, why) for m in mutations if (why := problem(m)) is not None]
    for mutation, why in impossible:
        print(f"{mutation.trap}: {mutation.what}: {why}")
    if impossible:
        return 1
    if options.list:
        print(*(f"{m.trap}  {m.what}  ->  {m.test}" for m in mutations), sep="\n")
        return 0
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="sero-mutate-") as folder:
        for name in COPIED:
            ignore = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for mutation in mutations:
            started = time.monotonic()
            red, said = is_red(mutation, Path(folder))
            survivors += not red
            mark = "red  " if red else "GREEN"
            took = time.monotonic() - started
            print(f"{mark} {mutation.trap}  {mutation.what}  ({took:.0f} s)", flush=True)
            if not red:
                print(f"      {mutation.test}: {said}", flush=True)
    print(f"{len(mutations)} mutations, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
