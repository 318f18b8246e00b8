"""The gate without a network: addresses, limits, bounds of a config."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from backend.security.bounds import Bounds, is_below, is_listed, violations
from backend.security.gate import Gate, Rules, is_loopback
from backend.security.limits import FailureLimit

RULES = Rules(False, frozenset({"http://127.0.0.1:8501"}), 100, 1000)


def ask(server: tuple[str, int | None] | None, path: str = "/api/v1/runs") -> int:
    """The status of a GET that arrived at the address `server`."""
    gate = Gate(PlainTextResponse("in"), create_engine("postgresql+psycopg://nowhere/x"), RULES)
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": [],
        "server": server,
        "client": ("10.0.0.9", 5),
    }
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    asyncio.run(gate(scope, receive, send))
    return statuses[0]


@pytest.mark.parametrize(
    ("server", "status"),
    [
        (("127.0.0.1", 8000), 200),
        (("::1", 8000), 200),
        (("::ffff:127.0.0.1", 8000), 200),
        (("/run/sero.sock", None), 200),
        (None, 200),
        (("10.0.0.5", 8000), 401),
        (("::ffff:10.0.0.5", 8000), 401),
        (("fe80::1", 8000), 401),
    ],
)
def test_what_does_not_arrive_over_loopback_needs_a_token(
    server: tuple[str, int | None] | None, status: int
) -> None:
    """However the server was started: a bind address chosen by hand closes it, not opens it."""
    assert ask(server) == status


def test_health_answers_without_a_token() -> None:
    assert ask(("10.0.0.5", 8000), "/api/v1/health") == 200
    assert ask(("10.0.0.5", 8000), "/api/v1/healthy") == 401


def test_unspecified_addresses_are_not_loopback() -> None:
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")


def test_failures_are_counted_per_address_and_forgotten() -> None:
    now = [0.0]
    limit = FailureLimit(most=2, window_s=10, max_addresses=2, clock=lambda: now[0])
    for _ in range(2):
        assert limit.wait_s("a") == 0
        limit.note("a")
    assert limit.wait_s("a") == 10
    assert limit.wait_s("b") == 0
    now[0] = 10.5
    assert limit.wait_s("a") == 0
    for address in ("b", "c"):
        limit.note(address)
    assert len(limit._failures) == 2


def test_paths_are_resolved_before_they_are_compared(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (root / "link").symlink_to(outside)
    assert is_below(str(root / "model"), [root])
    assert not is_below(str(root / "link" / "model"), [root])
    assert not is_below(f"{root}/../outside", [root])
    assert not is_below(f"{root}-evil", [root])
    assert not is_below("\0", [root])


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://llm.example/v1", True),
        ("https://llm.example/v1/", True),
        ("https://llm.example/v1/chat", True),
        ("https://llm.example/v10", False),
        ("https://llm.example/v1/../admin", False),
        ("https://llm.example/v1/%2e%2e/admin", False),
        ("https://llm.example@evil.example/v1", False),
        ("https://llm.example.evil.example/v1", False),
        ("http://llm.example/v1", False),
        ("http://169.254.169.254/latest", False),
    ],
)
def test_only_listed_endpoints(url: str, is_allowed: bool) -> None:
    assert is_listed(url, ["https://llm.example/v1"]) == is_allowed


def test_every_wrong_value_of_a_config_is_named(tmp_path: Path) -> None:
    config = {
        "name": "/etc/passwd",
        "policy": {"path": "/etc"},
        "env": {"data_root": ""},
        "sero": {
            "oracle": {"base_url": "http://10.0.0.1/v1", "api_key_env": "AWS_SECRET_ACCESS_KEY"}
        },
    }
    found = violations(config, Bounds((tmp_path,), ()))
    assert [item.field for item in found] == [
        "policy.path",
        "sero.oracle.base_url",
        "sero.oracle.api_key_env",
    ]
    assert "SERO_ROOTS" in found[0].allowed
    fine = {"policy": {"path": "demo"}, "x": [{"data_root": str(tmp_path / "alfworld")}]}
    assert violations(fine, Bounds((tmp_path,), ())) == []
