"""Settings come from the environment, with defaults below the home."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from backend.settings import Settings


def test_defaults_lie_below_the_home() -> None:
    settings = Settings.from_env({"SERO_HOME": "/data/sero", "SERO_BROKER_URL": ""})
    assert (
        settings.database_url == "postgresql+psycopg://sero@/sero?host=/data/sero/postgres/socket"
    )
    assert settings.broker_url.startswith("redis+socket:///data/sero/")
    assert settings.run_dir(12) == Path("/data/sero/runs/12")
    assert (settings.lease_s, settings.heartbeat_s) == (60, 15)
    assert (settings.configs_dir / "sero_demo.toml").is_file()


def test_a_relative_home_becomes_absolute() -> None:
    assert Settings.from_env({}).home == Path.cwd() / ".sero"


def test_variables_are_read() -> None:
    settings = Settings.from_env(
        {
            "SERO_DATABASE_URL": "postgresql+psycopg://db/x",
            "SERO_LEASE_S": "6",
            "SERO_HEARTBEAT_S": "2",
            "SERO_ALLOWED_HOSTS": "lab.example, 127.0.0.1",
        }
    )
    assert settings.database_url == "postgresql+psycopg://db/x"
    assert settings.allowed_hosts == ("lab.example", "127.0.0.1")
    assert settings.lease_s == 6


def test_a_lease_shorter_than_two_beats_is_refused() -> None:
    with pytest.raises(ValidationError, match="allowed: a lease of at least two beats"):
        Settings.from_env({"SERO_LEASE_S": "20"})
