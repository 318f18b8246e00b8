"""The language-model oracle against a real local HTTP server: retries, deadline, secrecy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import cast

import pytest
from pydantic import ValidationError

from sero_core.oracles import LLMOracle
from sero_core.types import Environment, Observation, OracleError, Prefix, PrefixStep, Task
from tests.support.chat_server import Script

KEY = "sk-very-secret-value"
TASK = Task("train/game/trial", "alfworld", "train", "pick_and_place_simple", "/nowhere", "0" * 64)
FIRST = Observation("Your task is to: put a mug in shelf.", ("go to desk 1", "go to shelf 1"))
SECOND = Observation("On the desk 1, you see a mug 1.", ("look", "take mug 1 from desk 1"))


@pytest.fixture
def server() -> Iterator[Script]:
    script = Script.start()
    yield script
    script.stop()


def config_for(server: Script, **changes: object) -> LLMOracle:
    settings = {"base_url": server.url, "model": "m", **changes}
    return LLMOracle.model_validate(settings)


def prefix_of(*observations: Observation) -> Prefix:
    steps = tuple(PrefixStep(observation, "go to desk 1") for observation in observations[:-1])
    return Prefix(TASK, steps, observations[-1], cast(Environment, None))


def test_it_shows_the_episode_and_copies_the_action(server: Script) -> None:
    server.answers = [(200, "I will take it.\n> take mug 1 from desk 1.", 0), (200, "look", 0)]
    oracle = config_for(server)()
    oracle.start(prefix_of(FIRST, SECOND))
    assert oracle.act(SECOND) == "take mug 1 from desk 1"
    assert oracle.act(Observation("You pick up the mug 1.", ("look",))) == "look"
    prompt = json.dumps(server.bodies[1])
    for text in (FIRST.text, "> go to desk 1", SECOND.text, "> take mug 1 from desk 1", "pick up"):
        assert text in prompt


def test_it_retries_what_may_pass(server: Script) -> None:
    server.answers = [(503, "", 0), (429, "", 0), (200, "go to desk 1", 0)]
    oracle = config_for(server)()
    oracle.start(prefix_of(FIRST))
    assert oracle.act(FIRST) == "go to desk 1"
    assert len(server.bodies) == 3


def test_it_does_not_retry_a_refusal(server: Script) -> None:
    server.answers = [(401, "", 0)]
    oracle = config_for(server)()
    oracle.start(prefix_of(FIRST))
    with pytest.raises(OracleError, match="HTTP 401"):
        oracle.act(FIRST)


def test_a_server_that_trickles_cannot_hold_it_past_the_deadline(server: Script) -> None:
    server.answers = [(200, "go to desk 1", 0.1)] * 3
    oracle = config_for(server, deadline_s=0.5, max_retries=2)()
    oracle.start(prefix_of(FIRST))
    began = time.monotonic()
    with pytest.raises(OracleError, match=r"no answer of m within 0\.5 s"):
        oracle.act(FIRST)
    assert time.monotonic() - began < 2.0


def test_the_key_is_sent_and_shown_nowhere(
    server: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    caplog.set_level(0)
    server.answers = [(200, "go to desk 1", 0), (403, "", 0)]
    config = config_for(server, api_key_env="SOME_KEY")
    oracle = config()
    oracle.start(prefix_of(FIRST))
    oracle.act(FIRST)
    assert server.keys == [f"Bearer {KEY}"]
    with pytest.raises(OracleError) as caught:
        oracle.act(FIRST)
    assert KEY not in f"{caught.value!r} {config!r} {config.model_dump_json()} {caplog.text}"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(OracleError, match="SOME_KEY is not set"):
        oracle.act(FIRST)


def test_a_key_in_the_place_of_its_name_is_refused() -> None:
    with pytest.raises(ValidationError):
        LLMOracle(base_url="http://localhost/v1", model="m", api_key_env=KEY)


@pytest.mark.parametrize("answer", ["", "fly to the moon"])
def test_an_answer_without_an_action_is_an_error(server: Script, answer: str) -> None:
    server.answers = [(200, answer, 0)]
    oracle = config_for(server)()
    oracle.start(prefix_of(FIRST))
    with pytest.raises(OracleError, match="names no admissible action"):
        oracle.act(FIRST)


def test_a_dead_endpoint_is_an_error() -> None:
    config = LLMOracle(base_url="http://127.0.0.1:9/v1", model="m", max_retries=0, deadline_s=5)
    oracle = config()
    oracle.start(prefix_of(FIRST))
    with pytest.raises(OracleError, match="ConnectError"):
        oracle.act(FIRST)
