"""One child process: own session, dies with its parent, logs to a file, stops as a group.

Children must be started from the main thread: Linux ties PDEATHSIG to the *thread* that forked.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
MAX_LOG_BYTES = 10_000_000


class ServiceError(RuntimeError):
    """A service cannot start; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Account:
    """The operating system user that a child runs as."""

    name: str
    uid: int
    gid: int

    @classmethod
    def find(cls, *names: str) -> Account:
        """The first of `names` that exists. Errors: `ServiceError`."""
        for name in names:
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(name, entry.pw_uid, entry.pw_gid)
        raise ServiceError(f"none of the users {', '.join(names)} exists on this machine")


@dataclass(frozen=True, slots=True)
class Command:
    """How to start and end a child. `death_signal` reaches it when its parent dies."""

    name: str
    args: tuple[str, ...]
    log: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL


class Child:
    """A started `Command`. Its process group ends with it."""

    def __init__(self, command: Command) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ServiceError(f"{command.name} must be started from the main thread")
        self.command = command
        self._is_asked_to_stop = False
        self._process = _spawn(command)

    @property
    def pid(self) -> int:
        return self._process.pid

    def returncode(self) -> int | None:
        """The exit status, or None while the child runs. Reaps it."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Send the stop signal, once, to the child itself, which ends its own children in order."""
        if self._process.poll() is None and not self._is_asked_to_stop:
            self._is_asked_to_stop = True
            with suppress(ProcessLookupError):
                self._process.send_signal(self.command.stop_signal)

    def wait(self, timeout_s: float) -> bool:
        """True when the child ended within `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End whatever is left of the group."""
        kill_group(self.pid)
        self._process.wait()

    def stop(self, grace_s: float) -> None:
        """Stop signal, `grace_s` seconds, then SIGKILL for the group."""
        self.request_stop()
        self.wait(grace_s)
        self.kill()


def kill_group(pgid: int) -> None:
    """SIGKILL every process of a group that one of our children leads; fine when it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(pgid, signal.SIGKILL)


def die_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the child gets `death_signal` when the thread that forks it ends.

    It runs after the change of user, which would clear the setting. The handle is opened here
    because the code between fork and exec must not allocate much. Nothing on other systems.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
            os._exit(126)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(125)

    return prepare


def is_alive(pid: int) -> bool:
    """True for a process that runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def tail(path: Path, num_lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 20_000))
        text = stream.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-num_lines:])


def _spawn(command: Command) -> subprocess.Popen[bytes]:
    command.log.parent.mkdir(parents=True, exist_ok=True)
    if command.log.exists() and command.log.stat().st_size > MAX_LOG_BYTES:
        command.log.replace(command.log.with_suffix(".log.1"))
    account = command.account
    with command.log.open("ab") as log:
        return subprocess.Popen(
            command.args,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env={**os.environ, **command.env},
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
            preexec_fn=die_with_parent(command.death_signal),
        )
