"""Wake-ups reach the queue that workers read, and the broker may come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from backend.client import SeroClient
from backend.main import create_app
from backend.schemas import SubmitRequest
from backend.settings import Settings
from backend.supervisor.valkey import EmbeddedValkey
from backend.wakeup import TASK, Wakeups
from tests.service.conftest import serve


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path / "home")
    server.start()
    yield server
    server.stop()


def waiting(server: EmbeddedValkey) -> list[tuple[str, str]]:
    """(task, arguments) of the messages in the workers' queue, oldest first."""
    with redis.Redis(unix_socket_path=str(server.socket)) as connection:
        raw = connection.lrange("celery", 0, -1)
    headers = [json.loads(message)["headers"] for message in reversed(raw)]  # pyright: ignore
    return [(header["task"], header["argsrepr"]) for header in headers]


def test_a_submit_sends_only_the_job_id(settings: Settings, valkey: EmbeddedValkey) -> None:
    up = settings.model_copy(update={"broker_url": valkey.url})
    with serve(create_app(up)) as url, SeroClient(url) as client:
        run = client.submit_run(SubmitRequest(preset="grpo_demo"), "key")
        client.submit_run(SubmitRequest(preset="grpo_demo"), "key")
        assert client.health().broker.is_ok
        kinds = [event.kind for event in client.events(run.id).events]
    assert waiting(valkey) == [(TASK, f"[{run.jobs[0].id}]")]
    assert kinds == ["run.submitted", "job.queued"]


def test_the_broker_may_go_and_come_back(valkey: EmbeddedValkey) -> None:
    wakeups = Wakeups(valkey.url)
    assert wakeups.send(1) is None
    valkey.stop()
    assert "does not answer" in str(wakeups.send(2))
    assert "does not answer" in str(wakeups.ping())
    valkey.start()
    assert wakeups.ping() is None
    assert wakeups.send(3) is None
    assert waiting(valkey) == [(TASK, "[1]"), (TASK, "[3]")]
    wakeups.close()
