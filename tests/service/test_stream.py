"""Streams and conditional requests: news at once, nothing missed, nothing sent twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from backend.client import SeroClient
from backend.db.ingest import write_log
from backend.db.queries import feed
from backend.schemas import SubmitRequest
from tests.service.helpers import end, start
from tests.service.test_ingest import record, store

DEMO = SubmitRequest(preset="sero_demo")


class Message:
    """One server-sent event."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        self.kind = fields["event"]
        self.id = fields.get("id")
        self.data: dict[str, Any] = json.loads(fields["data"])


def messages(response: httpx.Response) -> Iterator[Message]:
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
        elif lines and not lines[0].startswith(":"):
            yield Message(lines)
            lines = []
        else:
            lines = []


def test_a_stream_tells_everything_once_and_ends(
    client: SeroClient, engine: Engine, api_url: str
) -> None:
    run = client.submit_run(DEMO)
    seen: list[Message] = []
    url = f"{api_url}/api/v1/runs/{run.id}/stream?is_from_start=true"

    def follow() -> None:
        with httpx.stream("GET", url, timeout=30) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            seen.extend(messages(response))

    reader = Thread(target=follow)
    reader.start()
    claimed = start(engine)
    for iteration in range(3):
        store(engine, claimed, record(iteration))
        with engine.begin() as connection:
            write_log(connection, run.id, claimed.job_id, 1, iteration, [f"line {iteration}"])
    end(engine, claimed.job_id)
    reader.join(30)
    assert not reader.is_alive()
    kinds = [message.kind for message in seen]
    assert kinds[-1] == "end"
    events = [message.data["event"]["kind"] for message in seen if message.kind == "event"]
    assert events == [
        "run.submitted",
        "job.queued",
        "job.wakeup_failed",
        "job.claimed",
        "job.succeeded",
    ]
    metrics = [m.data["metrics"] for m in seen if m.kind == "metrics"]
    assert [entry["iteration"] for entry in metrics] == [0, 1, 2]
    assert metrics[0]["values"]["train/kl"] is None  # NaN
    lines = [line["text"] for m in seen if m.kind == "log" for line in m.data["log"]]
    assert lines == ["line 0", "line 1", "line 2"]
    assert [m.data["run"]["status"] for m in seen if m.kind == "run"][-1] == "succeeded"


def test_news_arrives_within_a_second_and_a_reader_that_comes_back_goes_on(
    client: SeroClient, engine: Engine, api_url: str
) -> None:
    run = client.submit_run(DEMO)
    claimed = start(engine)
    store(engine, claimed, record(0))
    url = f"{api_url}/api/v1/runs/{run.id}/stream"
    with httpx.stream("GET", url, timeout=30) as response:
        stream = messages(response)
        first = next(stream)
        assert first.kind == "run"  # what is there already is not sent again
        sent_at = time.monotonic()
        store(engine, claimed, record(1))
        found = next(m for m in stream if m.kind == "metrics")
        assert time.monotonic() - sent_at < 1.0
        assert found.data["metrics"]["iteration"] == 1
    store(engine, claimed, record(2))
    end(engine, claimed.job_id)
    with httpx.stream("GET", url, headers={"Last-Event-ID": str(found.id)}, timeout=30) as response:
        rest = [m.data["metrics"]["iteration"] for m in messages(response) if m.kind == "metrics"]
    assert rest == [2]


def test_a_stream_of_no_run_is_a_404(api_url: str, client: SeroClient) -> None:
    assert httpx.get(f"{api_url}/api/v1/runs/7/stream").status_code == 404


@pytest.mark.parametrize("value", ["", "1.2", "a.b.c", "1.2.3.4"])
def test_a_cursor_that_is_none_is_refused(value: str) -> None:
    assert feed.FeedCursor.parse(value) is None
    assert str(feed.FeedCursor.parse("1.2.-1")) == "1.2.-1"


def test_an_unchanged_answer_is_a_304(client: SeroClient, engine: Engine, api_url: str) -> None:
    run = client.submit_run(DEMO)
    url = f"{api_url}/api/v1/runs/{run.id}"
    first = httpx.get(url)
    tag = first.headers["etag"]
    again = httpx.get(url, headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    start(engine)
    changed = httpx.get(url, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["status"]) == (200, "running")
    assert changed.headers["etag"] != tag
    missing = httpx.get(f"{api_url}/api/v1/runs/99", headers={"If-None-Match": tag})
    assert missing.status_code == 404
    assert "etag" not in missing.headers
    # the client keeps what did not change
    assert client.run(run.id) is client.run(run.id)
