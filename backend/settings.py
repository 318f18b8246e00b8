"""Every setting of the service, read from the environment in one place.

| variable | default | meaning |
|---|---|---|
| `SERO_HOME` | `./.sero` | runs, logs, embedded services |
| `SERO_DATABASE_URL` | socket below the home | `postgresql+psycopg://...` |
| `SERO_BROKER_URL` | socket below the home | Celery broker |
| `SERO_API_URL` | `http://127.0.0.1:8000` | where clients find the API |
| `SERO_DASHBOARD_URL` | `http://127.0.0.1:8501` | where people find the dashboard |
| `SERO_CONFIGS` | `configs` beside the packages | folder of the presets |
| `SERO_LEASE_S`, `SERO_HEARTBEAT_S` | 60, 15 | how long a silent worker keeps its job; its beat |
| `SERO_VISIBILITY_TIMEOUT_S` | 3600 | when the broker sends a message again that nobody took |
| `SERO_SPOOL_KEEP_MB` | 64 | what stays of an attempt's spool after the database has it |
| `SERO_MAX_ATTEMPTS` | 3 | attempts that may fail before the job fails |
| `SERO_LABELS` | none | what this worker offers, as in `gpu,a100`: jobs that ask for it come here |
| `SERO_DEVICES` | none | devices it hands out, as in `0,1,2`: a job sees only those it was given |
| `SERO_SLOTS` | one per device | jobs that it runs at once |
| `SERO_ALLOWED_HOSTS` | `127.0.0.1,localhost,testserver` | Host headers the API answers to |
| `SERO_REQUIRE_TOKEN` | empty | `1`: a token also over loopback (elsewhere always) |
| `SERO_ROOTS` | see `default_roots` | folders that configs may name, separated by `:` |
| `SERO_ENDPOINTS` | none | URLs that oracles and judges may call, separated by spaces |
| `SERO_MAX_BODY_BYTES`, `SERO_MAX_IMPORT_BYTES` | 1 MB, 2 GB | longest request; longest import |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_REPOSITORY = Path(__file__).resolve().parent.parent


class Settings(BaseModel):
    """Frozen settings of one process. `lease_s`, `heartbeat_s` are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path = Path(".sero")
    database_url: str = ""
    broker_url: str = ""
    api_url: str = "http://127.0.0.1:8000"
    dashboard_url: str = "http://127.0.0.1:8501"
    configs_dir: Path = _REPOSITORY / "configs"
    lease_s: float = Field(default=60.0, gt=0)
    heartbeat_s: float = Field(default=15.0, gt=0)
    max_attempts: int = Field(default=3, ge=1)
    visibility_timeout_s: float = Field(default=3600.0, gt=0)
    spool_keep_mb: float = Field(default=64.0, ge=0)
    labels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    slots: int | None = Field(default=None, ge=1, le=256)
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "testserver")
    require_token: bool = False
    roots: tuple[Path, ...] = ()
    endpoints: tuple[str, ...] = ()
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)
    max_import_bytes: int = Field(default=2_000_000_000, ge=1_000)

    @model_validator(mode="before")
    @classmethod
    def _sockets_below_home(cls, values: dict[str, object]) -> dict[str, object]:
        home = Path(str(values.get("home") or ".sero")).absolute()
        filled = {**values, "home": home}
        filled["database_url"] = (
            values.get("database_url")
            or f"postgresql+psycopg://sero@/sero?host={home}/postgres/socket"
        )
        filled["broker_url"] = (
            values.get("broker_url") or f"redis+socket://{home}/valkey/valkey.sock"
        )
        filled["roots"] = values.get("roots") or default_roots(home)
        return filled

    @model_validator(mode="after")
    def _beat_within_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_s:
            raise ValueError(
                f"SERO_HEARTBEAT_S={self.heartbeat_s} with SERO_LEASE_S={self.lease_s}: one lost "
                "beat would lose the job; allowed: a lease of at least two beats"
            )
        return self

    @property
    def num_slots(self) -> int:
        """Jobs that a worker runs at once: as given, else one per device, at least one."""
        return self.slots or max(1, len(self.devices))

    @property
    def runs_dir(self) -> Path:
        """Folder of all run directories."""
        return self.home / "runs"

    @property
    def spool_keep_bytes(self) -> int:
        return int(self.spool_keep_mb * 2**20)

    def run_dir(self, run_id: int) -> Path:
        """Directory of one run: config.toml, checkpoints/, spool/ (see `backend/spool.py`)."""
        return self.runs_dir / str(run_id)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `SERO_*` variables; an empty one counts as absent.

        Errors: pydantic.ValidationError naming the setting.
        """
        source = os.environ if environ is None else environ
        values: dict[str, object] = {
            name: source[variable] for name, variable in _VARIABLES.items() if source.get(variable)
        }
        for name, variable in _LISTS.items():
            if given := source.get(variable):
                values[name] = tuple(part.strip() for part in given.split(",") if part.strip())
        if roots := source.get("SERO_ROOTS"):
            values["roots"] = tuple(Path(root) for root in roots.split(os.pathsep) if root)
        if endpoints := source.get("SERO_ENDPOINTS"):
            values["endpoints"] = tuple(endpoints.split())
        return cls.model_validate(values)


def default_roots(home: Path) -> tuple[Path, ...]:
    """Where models and data usually lie: this home, the caches of sero, ALFWorld and the Hub."""
    user = Path.home()
    named = [Path(os.environ[name]) for name in ("ALFWORLD_DATA", "HF_HOME") if name in os.environ]
    caches = (user / ".cache" / name for name in ("sero", "alfworld", "huggingface"))
    return (home, *caches, *named)


_VARIABLES = {
    "home": "SERO_HOME",
    "database_url": "SERO_DATABASE_URL",
    "broker_url": "SERO_BROKER_URL",
    "api_url": "SERO_API_URL",
    "dashboard_url": "SERO_DASHBOARD_URL",
    "configs_dir": "SERO_CONFIGS",
    "lease_s": "SERO_LEASE_S",
    "heartbeat_s": "SERO_HEARTBEAT_S",
    "max_attempts": "SERO_MAX_ATTEMPTS",
    "require_token": "SERO_REQUIRE_TOKEN",
    "max_body_bytes": "SERO_MAX_BODY_BYTES",
    "max_import_bytes": "SERO_MAX_IMPORT_BYTES",
    "slots": "SERO_SLOTS",
    "visibility_timeout_s": "SERO_VISIBILITY_TIMEOUT_S",
    "spool_keep_mb": "SERO_SPOOL_KEEP_MB",
}
_LISTS = {
    "allowed_hosts": "SERO_ALLOWED_HOSTS",
    "labels": "SERO_LABELS",
    "devices": "SERO_DEVICES",
}
