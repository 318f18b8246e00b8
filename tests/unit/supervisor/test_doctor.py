"""Each thing that can be wrong gets one clear sentence before work starts."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from pathlib import Path

from backend import doctor

SCRIPT = Path(doctor.__file__)


def test_it_parses_with_python_3_8_and_needs_only_the_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 8))
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {
        name.split(".")[0]
        for node in top
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert names <= sys.stdlib_module_names


def test_it_runs_without_our_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "--before-install", "--api-port", "1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Python 3." in done.stderr


def test_python_too_old() -> None:
    finding = doctor.check_python((3, 8, 18), "/usr/bin/python3")
    assert finding == (
        False,
        "Python 3.8.18 (/usr/bin/python3) is too old: SERO Lab needs Python 3.11 or newer; "
        "install it and name it, for instance `make demo PYTHON=python3.11`",
    )
    assert doctor.check_python((3, 11, 0), "python").is_ok
    assert doctor.check_python((4, 0, 0), "python").is_ok


def test_missing_compiler_is_named_only_where_it_is_needed() -> None:
    finding = doctor.check_compiler(lambda _: None, has_alfworld=False)
    assert not finding.is_ok
    assert "apt install build-essential" in finding.message
    assert doctor.check_compiler(lambda _: None, has_alfworld=True).is_ok
    only_c = doctor.check_compiler(lambda name: name if name in ("gcc", "make") else None, False)
    assert only_c.message.startswith("not found: a C++ compiler;")
    assert doctor.check_compiler(lambda name: name, has_alfworld=False).is_ok


def test_port_in_use() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        finding = doctor.check_port(port, "--api-port")
    assert finding == (
        False,
        f"port {port} is in use: stop the program that uses it, "
        "or choose another port with --api-port",
    )
    assert doctor.check_port(port, "--api-port").is_ok


def test_disk_full(tmp_path: Path) -> None:
    finding = doctor.check_disk(tmp_path, 300_000_000, doctor.RUN_BYTES)
    assert finding.message == (f"the disk is nearly full: 0.3 GB free for {tmp_path}, 1 GB needed")
    assert doctor.check_disk(tmp_path, 2_000_000_000, doctor.RUN_BYTES).is_ok


def test_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = doctor.check_home(tmp_path / "file" / "home")
    assert not finding.is_ok
    assert finding.message.endswith("set SERO_HOME to a folder of yours")


def test_missing_packages_name_the_extra() -> None:
    finding = doctor.check_packages("train", ("json", "no_such_package"))
    assert finding == (
        False,
        "missing packages: no_such_package; install them with `pip install '.[train]'`",
    )


def test_a_binary_that_does_not_run(tmp_path: Path) -> None:
    fake = tmp_path / "postgres"
    fake.write_text("#!/bin/sh\necho wrong libc >&2\nexit 127\n")
    fake.chmod(0o755)
    finding = doctor.check_binary("PostgreSQL", fake)
    assert finding == (
        False,
        f"PostgreSQL at {fake} does not run on this machine: wrong libc",
    )
    assert not doctor.check_binary("PostgreSQL", tmp_path / "nothing").is_ok


def test_report_says_whether_something_blocks() -> None:
    lines: list[str] = []
    assert not doctor.report(
        [doctor.Finding(True, "good"), doctor.Finding(False, "bad")], lines.append
    )
    assert lines == ["ok       good\n", "BLOCKED  bad\n"]
