"""The command line on a real API: queue, stop, cancel, resume, extend, delete, push."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from backend import cli_queue
from backend.client import SeroClient
from sero_core.cli import app
from sero_core.config import RunConfig
from tests.service.helpers import rows, start, submit
from tests.service.test_ingest import record

cli_queue.register()


@pytest.fixture(autouse=True)
def _address(api_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERO_API_URL", api_url)
    monkeypatch.setenv("COLUMNS", "200")


def sero(*args: str, code: int = 0) -> str:
    result: Result = CliRunner().invoke(app, [*args])
    assert result.exit_code == code, result.output
    return result.output


def test_the_queue_says_why_a_job_waits(engine: Engine) -> None:
    submit(engine)
    assert "no worker is alive" in sero("queue")


def test_stop_and_cancel_do_what_they_say(engine: Engine) -> None:
    """A running job is asked to write a checkpoint by `stop`, and to die by `cancel`."""
    job_id = submit(engine)
    start(engine, job_id)
    asked = "SELECT is_cancel_requested, is_kill_requested FROM jobs"
    assert "run 1 is stopping" in sero("stop", "1")
    assert rows(engine, asked) == [(True, False)]
    sero("cancel", "1")
    assert rows(engine, asked) == [(True, True)]


def test_a_queued_run_is_stopped_resumed_extended_and_deleted(
    engine: Engine, client: SeroClient
) -> None:
    submit(engine)
    assert "run 1 is cancelled" in sero("stop", "1")
    assert "run 1 is queued" in sero("resume", "1")
    sero("cancel", "1")
    assert "queued" in sero("extend", "1", "20")
    assert client.run(1).num_iterations == 20
    sero("cancel", "1")
    assert "deleted run 1" in sero("delete", "1", "--yes")
    assert client.runs().num_total == 0
    assert "there is no run 1" in sero("stop", "1", code=1)


def test_push_stores_a_folder_of_sero_train_once(tmp_path: Path, client: SeroClient) -> None:
    folder = tmp_path / "offline"
    assert "is not a folder of `sero train`" in sero("push", str(folder), code=2)
    folder.mkdir()
    config = RunConfig(name="offline", num_iterations=5)
    (folder / "config.json").write_text(config.model_dump_json())
    (folder / "code.json").write_text(json.dumps({"commit": "abc", "is_dirty": False}))
    lines = [record(i).model_dump_json() for i in range(3)]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")
    assert "run 1: 3 new of 3 iterations" in sero("push", str(folder))
    assert "run 1: 0 new of 3 iterations" in sero("push", str(folder))
    run = client.run(1)
    assert (run.name, run.git_commit, run.is_imported) == ("offline", "abc", True)
