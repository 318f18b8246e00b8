"""`sero doctor`: is this machine ready? One sentence per check, before any work starts.

Runs with any Python from 3.8 on and nothing but the standard library, so that `make demo` can call
`python3 backend/doctor.py --before-install` first.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, NamedTuple  # noqa: UP035 (Python 3.8 parses this file)

MIN_PYTHON = (3, 11)
INSTALL_BYTES = 4_000_000_000
RUN_BYTES = 1_000_000_000
PACKAGES = {
    "train": ("torch", "transformers", "safetensors", "tokenizers"),
    "alfworld": ("alfworld", "textworld"),
    "dashboard": ("streamlit", "altair", "pandas"),
    "core": ("celery", "fastapi", "psycopg", "pydantic", "rich", "sqlalchemy", "typer", "uvicorn"),
}


class Finding(NamedTuple):
    """What a check found. `is_ok=False` blocks; a warning (`is_ok=True`) starts with `note:`."""

    is_ok: bool
    message: str


def check_python(version: tuple[int, ...], executable: str) -> Finding:
    """`version` as in sys.version_info."""
    found = ".".join(str(part) for part in version[:3])
    if tuple(version[:2]) < MIN_PYTHON:
        return Finding(
            False,
            f"Python {found} ({executable}) is too old: SERO Lab needs Python 3.11 or newer; "
            "install it and name it, for instance `make demo PYTHON=python3.11`",
        )
    return Finding(True, f"Python {found}")


def check_venv() -> Finding:
    """Debian ships `venv` without `ensurepip` unless python3-venv is installed."""
    if importlib.util.find_spec("ensurepip") is None:
        return Finding(
            False,
            "Python's venv module is incomplete: on Debian, `apt install python3-venv`",
        )
    return Finding(True, "Python can make virtual environments")


def check_compiler(which: Callable[[str], str | None], has_alfworld: bool) -> Finding:
    """Two dependencies of alfworld are built from source, once."""
    if has_alfworld:
        return Finding(True, "no compiler needed, alfworld is installed")
    tools = {
        "a C compiler": ("cc", "gcc", "clang"),
        "a C++ compiler": ("c++", "g++", "clang++"),
        "make": ("make",),
    }
    missing = [tool for tool, names in tools.items() if not any(which(name) for name in names)]
    if missing:
        return Finding(
            False,
            f"not found: {', '.join(missing)}; two packages of alfworld are built from source: "
            "install what is missing, on Debian with `apt install build-essential`",
        )
    return Finding(True, "a C/C++ compiler is there")


def check_port(port: int, option: str) -> Finding:
    """Can we listen on 127.0.0.1:`port`?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Finding(
                False,
                f"port {port} is in use: stop the program that uses it, "
                f"or choose another port with {option}",
            )
    return Finding(True, f"port {port} is free")


def check_disk(folder: Path, free: int, needed: int) -> Finding:
    """`free`, `needed` in bytes."""
    if free < needed:
        return Finding(
            False,
            f"the disk is nearly full: {free / 1e9:.1f} GB free for {folder}, "
            f"{needed / 1e9:.0f} GB needed",
        )
    return Finding(True, f"{free / 1e9:.0f} GB free")


def check_home(home: Path) -> Finding:
    """Can we write where runs and services live?"""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=str(home)):
            pass
    except OSError as error:
        return Finding(
            False,
            f"the folder {home} cannot be written ({error.strerror}): "
            "set SERO_HOME to a folder of yours",
        )
    return Finding(True, f"{home} is writable")


def check_packages(extra: str, names: tuple[str, ...]) -> Finding:
    """Are the packages of an extra there? Looks without importing them."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        target = "." if extra == "core" else f".[{extra}]"
        return Finding(
            False,
            f"missing packages: {', '.join(missing)}; install them with `pip install '{target}'`",
        )
    return Finding(True, f"packages of `{extra}` are installed")


def check_binary(name: str, path: Path) -> Finding:
    """Does `path --version` run on this machine?"""
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(False, f"{name} at {path} does not run on this machine: {error}")
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit status {done.returncode}"
        return Finding(False, f"{name} at {path} does not run on this machine: {reason}")
    return Finding(True, done.stdout.strip())


def before_install(api_port: int, dashboard_port: int) -> list[Finding]:
    """What must hold before anything is installed."""
    here = Path.cwd()
    installed = any(here.glob(".venv/lib/python3*/site-packages/alfworld"))
    has_torch = any(here.glob(".venv/lib/python3*/site-packages/torch"))
    needed = RUN_BYTES if installed and has_torch else INSTALL_BYTES
    return [
        check_python(tuple(sys.version_info[:3]), sys.executable),
        check_venv(),
        check_compiler(shutil.which, installed),
        check_disk(here, shutil.disk_usage(str(here)).free, needed),
        check_port(api_port, "API_PORT"),
        check_port(dashboard_port, "DASHBOARD_PORT"),
    ]


def after_install(home: Path, api_port: int, dashboard_port: int) -> list[Finding]:
    """What must hold to run."""
    writable = check_home(home)
    findings = [check_python(tuple(sys.version_info[:3]), sys.executable), writable]
    if writable.is_ok:
        findings.append(check_disk(home, shutil.disk_usage(str(home)).free, RUN_BYTES))
    findings += [check_packages(extra, names) for extra, names in PACKAGES.items()]
    has_alfworld = importlib.util.find_spec("alfworld") is not None
    findings.append(check_compiler(shutil.which, has_alfworld))
    findings.append(check_port(api_port, "--api-port"))
    findings.append(check_port(dashboard_port, "--dashboard-port"))
    if all(finding.is_ok for finding in findings):
        findings += check_embedded()
    return findings


def check_embedded() -> list[Finding]:
    """The embedded servers, unless the environment names others."""
    from backend.supervisor.postgres import find_bin_dir
    from backend.supervisor.process import ServiceError
    from backend.supervisor.valkey import find_server

    findings: list[Finding] = []
    for variable, name, find in (
        ("SERO_DATABASE_URL", "PostgreSQL", lambda: find_bin_dir() / "postgres"),
        ("SERO_BROKER_URL", "Valkey", find_server),
    ):
        if os.environ.get(variable):
            findings.append(Finding(True, f"{name} is the one of {variable}"))
            continue
        try:
            findings.append(check_binary(name, find()))
        except ServiceError as error:
            findings.append(Finding(False, str(error)))
    return findings


def report(findings: list[Finding], write: Callable[[str], object]) -> bool:
    """Write one line per finding; True when nothing blocks."""
    for finding in findings:
        write(f"{'ok      ' if finding.is_ok else 'BLOCKED '} {finding.message}\n")
    return all(finding.is_ok for finding in findings)


def main() -> int:
    """The script `python3 backend/doctor.py --before-install`. 0 = ready, 1 = something blocks."""
    parser = argparse.ArgumentParser(description="Check whether this machine can run SERO Lab.")
    parser.add_argument("--before-install", action="store_true", required=True)
    parser.add_argument("--api-port", type=int, default=8000)
    parser.add_argument("--dashboard-port", type=int, default=8501)
    parser.add_argument("--quiet", action="store_true", help="say only what blocks")
    options = parser.parse_args()
    findings = before_install(options.api_port, options.dashboard_port)
    if options.quiet:
        findings = [finding for finding in findings if not finding.is_ok]
    return 0 if report(findings, sys.stderr.write) else 1


if __name__ == "__main__":
    sys.exit(main())
