"""The gate in front of a real API: tokens, scopes, origins, sizes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from backend.client import ApiError, SeroClient
from backend.main import create_app
from backend.schemas import SubmitRequest, TokenRequest
from backend.security import tokens
from backend.security.gate import needed_scope
from backend.security.tokens import Scope
from backend.serve import UnsafeAddress, check_address
from backend.settings import Settings
from tests.service.conftest import serve
from tests.service.helpers import value


@pytest.fixture
def closed(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_token": True, "max_body_bytes": 2000})


def make(engine: Engine, scope: Scope = "read", days: int | None = None) -> str:
    with engine.begin() as connection:
        return tokens.issue(connection, f"a {scope} token", scope, days)[1]


def code(url: str, token: str = "", **options: Any) -> tuple[int, str]:  # noqa: ANN401
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= options.pop("headers", {})
    method, path = options.pop("method", "GET"), options.pop("path", "/runs")
    answer = httpx.request(method, f"{url}/api/v1{path}", headers=headers, **options)
    content = answer.json() if answer.content else {}
    return answer.status_code, content.get("error", {}).get("code", "")


def test_a_token_opens_what_its_scope_covers(engine: Engine, closed: Settings) -> None:
    reader, submitter, admin = (make(engine, scope) for scope in ("read", "submit", "admin"))
    with serve(create_app(closed)) as url:
        assert code(url) == (401, "unauthorized")
        assert code(url, "sero_000000000000_" + "x" * 43) == (401, "unauthorized")
        assert code(url, reader)[0] == 200
        assert code(url, path="/health")[0] == 200, "health needs no token"
        validate = {"method": "POST", "path": "/runs:validate", "json": {"preset": "sero_demo"}}
        assert code(url, reader, **validate) == (403, "forbidden")
        assert code(url, submitter, **validate)[0] == 200
        assert code(url, submitter, path="/tokens") == (403, "forbidden")
        assert code(url, admin, path="/tokens")[0] == 200
        assert code(url, admin, path="/openapi.json")[0] == 200
        assert code(url, path="/openapi.json")[0] == 401


def test_a_token_is_shown_once_and_kept_as_a_hash(engine: Engine, closed: Settings) -> None:
    with serve(create_app(closed)) as url, SeroClient(url, token=make(engine, "admin")) as client:
        made = client.create_token(TokenRequest(name="ci", scope="submit", days=1))
        assert re.fullmatch(tokens.FORM, made.token)
        secret = made.token[len("sero_000000000000_") :]
        stored = value(engine, "SELECT t::text FROM api_tokens t WHERE id = :id", id=made.id)
        assert secret not in stored
        assert secret not in client.tokens().model_dump_json()
        with SeroClient(url, token=made.token) as other:
            assert other.whoami().name == "ci"
            client.revoke_token(made.id)
            with pytest.raises(ApiError, match="valid token"):
                other.whoami()


def test_an_expired_token_opens_nothing(engine: Engine, closed: Settings) -> None:
    token = make(engine, days=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE api_tokens SET expires_at = now() - interval '1 second'"))
    with serve(create_app(closed)) as url:
        assert code(url, token) == (401, "unauthorized")


def test_guessing_is_slowed_down_but_a_missing_token_is_not_counted(
    engine: Engine, closed: Settings
) -> None:
    token = make(engine)
    with serve(create_app(closed)) as url:
        for _ in range(20):
            assert code(url)[0] == 401
        assert code(url, token)[0] == 200
        answers = [code(url, "sero_000000000000_" + "x" * 43) for _ in range(11)]
        assert answers[:10] == [(401, "unauthorized")] * 10
        assert answers[10] == (429, "too_many_failures")
        assert code(url, token) == (429, "too_many_failures"), "from this address, any token waits"


def test_pages_of_other_sites_cannot_write(settings: Settings) -> None:
    validate = {"method": "POST", "path": "/runs:validate", "json": {"preset": "sero_demo"}}
    with serve(create_app(settings)) as url:
        assert code(url, **validate)[0] == 200
        evil = {"headers": {"Origin": "https://evil.example"}}
        assert code(url, **validate, **evil) == (403, "wrong_origin")
        cross = {"headers": {"Sec-Fetch-Site": "cross-site"}}
        assert code(url, **validate, **cross) == (403, "wrong_origin")
        own = {"headers": {"Origin": settings.dashboard_url}}
        assert code(url, **validate, **own)[0] == 200
        assert code(url, **evil)[0] == 200, "reading is for CORS to decide, and we send no header"


def test_a_long_body_is_refused_by_header_and_by_count(closed: Settings, engine: Engine) -> None:
    token = make(engine, "submit")
    long = b"{" + b" " * 3000 + b"}"
    with serve(create_app(closed)) as url:
        post = {"method": "POST", "path": "/runs:validate"}
        assert code(url, token, content=long, **post) == (413, "body_too_large")
        chunks = (long[start : start + 500] for start in range(0, len(long), 500))
        assert code(url, token, content=chunks, **post) == (413, "body_too_large")


def test_any_other_address_starts_only_with_a_token(settings: Settings, engine: Engine) -> None:
    for loopback in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check_address(settings, loopback)
    for open_address in ("0.0.0.0", "::", "192.168.0.7", "gpu-1.example"):
        with pytest.raises(UnsafeAddress, match="sero token create"):
            check_address(settings, open_address)
    expired = make(engine, "admin", days=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE api_tokens SET expires_at = now() - interval '1 second'"))
    with pytest.raises(UnsafeAddress):
        check_address(settings, "0.0.0.0")
    assert make(engine, "read") != expired
    check_address(settings, "0.0.0.0")


def test_every_route_has_the_scope_one_would_expect(settings: Settings) -> None:
    """What is not a read needs at least submit; what deletes or administers needs admin."""
    schema = create_app(settings).openapi()
    for path, item in schema["paths"].items():
        concrete = re.sub(r"\{[^}]+\}", "1", path)
        for method in item:
            scope = needed_scope(method.upper(), concrete)
            if method == "delete" or "/tokens" in path:
                assert scope == "admin", (method, path)
            elif method == "get":
                assert scope == "read", (method, path)
            else:
                assert scope in ("submit", "admin"), (method, path)


def test_the_home_of_the_settings_is_a_root(settings: Settings, tmp_path: Path) -> None:
    assert settings.roots[0] == tmp_path


def test_prometheus_reads_requests_and_queue(client: SeroClient, api_url: str) -> None:
    run = client.submit_run(SubmitRequest(preset="sero_demo"))
    client.run(run.id)
    text_format = httpx.get(f"{api_url}/metrics").text
    assert "sero_database_up 1.0" in text_format
    assert 'sero_jobs{kind="train",state="queued"} 1.0' in text_format
    assert 'method="GET",route="/runs/{run_id}",status="200"} 1.0' in text_format
    assert 'sero_workers{state="alive"} 0.0' in text_format


def test_prometheus_needs_a_token_where_the_api_does(closed: Settings, engine: Engine) -> None:
    token = make(engine)
    with serve(create_app(closed)) as url:
        assert httpx.get(f"{url}/metrics").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/metrics", headers=headers).status_code == 200
