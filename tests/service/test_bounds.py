"""A config names only what the server's settings allow: at submit, in jobs, and in the worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.main import create_app
from backend.schemas import SubmitRequest
from backend.settings import Settings
from tests.service.conftest import serve
from tests.service.helpers import start, submit
from worker.plan import JobError, prepare

LLM = {"name": "llm", "base_url": "http://10.0.0.1/v1", "model": "m", "api_key_env": "HOME"}


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({"policy": {"path": "/etc"}}, ["policy.path"]),
        ({"env": {"data_root": "/root"}}, ["env.data_root"]),
        ({"sero": {"oracle": LLM}}, ["sero.oracle.base_url", "sero.oracle.api_key_env"]),
    ],
)
def test_a_run_that_reaches_outside_is_refused_by_field(
    client: SeroClient, config: dict[str, Any], fields: list[str]
) -> None:
    request = SubmitRequest(config={"name": "x", **config})
    for ask in (client.validate_run, client.submit_run):
        with pytest.raises(ApiError) as caught:
            ask(request)
        assert caught.value.status == 422
        assert [field.field for field in caught.value.fields] == fields
    assert client.runs().num_total == 0


def test_what_the_settings_name_is_taken(settings: Settings, tmp_path: Path) -> None:
    wide = settings.model_copy(update={"endpoints": ("http://10.0.0.1/v1",)})
    oracle = {**LLM, "api_key_env": "SERO_SECRET_JUDGE"}
    config: dict[str, Any] = {"name": "x", "sero": {"oracle": oracle}}
    config["policy"] = {"path": str(tmp_path / "models" / "tiny")}
    with serve(create_app(wide)) as url, SeroClient(url) as client:
        assert client.submit_run(SubmitRequest(config=config)).id == 1


def test_the_worker_checks_again(engine: Engine, settings: Settings) -> None:
    """The settings may have changed since, or the row may not have come through this API."""
    claimed = start(engine, submit(engine))
    prepare(engine, settings, claimed)
    policy = {"policy": {"path": "/etc"}}
    with pytest.raises(JobError, match=r"policy\.path: '/etc' is outside"):
        prepare(engine, settings, replace(claimed, config={**claimed.config, **policy}))
    with pytest.raises(JobError, match=r"sero\.oracle\.base_url"):
        prepare(
            engine, settings, replace(claimed, config={**claimed.config, "sero": {"oracle": LLM}})
        )
