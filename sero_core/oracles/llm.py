"""A language model behind any OpenAI-compatible endpoint as oracle. Training only.

The key is read from the environment variable that the config names, at the moment of the request;
it is in no config, no log line and no error message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from sero_core.types import Observation, Oracle, OracleError, Prefix

if TYPE_CHECKING:
    import httpx

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
MAX_ANSWER_BYTES = 1_000_000

SYSTEM = (
    "You finish a task in a text environment that someone else began. You are shown the task, the "
    "recent steps and the admissible actions. Answer with one admissible action, copied exactly, "
    "and nothing else."
)


class LLMOracle(BaseModel):
    """A model behind an OpenAI-compatible endpoint; sees only the episode's texts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["llm"] = "llm"
    base_url: str = Field(
        pattern=r"^https?://", description="Endpoint, for example http://localhost:8000/v1"
    )
    model: str = Field(min_length=1, description="Model name that the endpoint knows")
    api_key_env: str = Field(
        default="",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$",
        description="NAME of the environment variable that holds the key; empty: no key",
    )
    deadline_s: float = Field(default=60.0, gt=0, description="For one action, retries included")
    max_retries: int = Field(default=3, ge=0, le=20, description="After the first try")
    max_tokens: int = Field(default=512, ge=1, description="Of one answer")
    temperature: float = Field(default=0.0, ge=0, le=2, description="Of the sampling")
    history_steps: int = Field(
        default=20, ge=0, description="Steps of the episode that it is shown"
    )

    def __call__(self) -> Oracle:
        return LLM(self)


class LLM:
    """Keeps the episode as text and asks for one action at a time."""

    def __init__(self, config: LLMOracle) -> None:
        self._config = config
        self._intro = ""
        self._steps: list[tuple[str, str]] = []
        self._last_action: str | None = None

    def start(self, prefix: Prefix) -> None:
        after = [*(step.observation.text for step in prefix.steps), prefix.observation.text]
        self._intro = after[0]
        actions = [step.action for step in prefix.steps]
        self._steps = list(zip(actions, after[1:], strict=True))
        self._last_action = None

    def act(self, observation: Observation) -> str:
        if not self._intro:
            raise OracleError("the language model was not started")
        if self._last_action is not None:
            self._steps.append((self._last_action, observation.text))
        shown = self._steps[len(self._steps) - min(self._config.history_steps, len(self._steps)) :]
        answer = ask(self._config, _prompt(self._intro, shown, observation.admissible))
        self._last_action = _parse(answer, observation.admissible)
        return self._last_action


def ask(config: LLMOracle, prompt: str) -> str:
    """The model's answer. Retries what may pass; OracleError past the deadline or for good."""
    import httpx

    end = time.monotonic() + config.deadline_s
    headers: dict[str, str] = {}
    if config.api_key_env:
        if config.api_key_env not in os.environ:
            raise OracleError(f"the environment variable {config.api_key_env} is not set")
        headers["Authorization"] = f"Bearer {os.environ[config.api_key_env]}"
    body = {
        "model": config.model,
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}],
        "max_tokens": config.max_tokens,
        "temperature": config.temperature,
    }
    url = f"{config.base_url.rstrip('/')}/chat/completions"
    reason = "no time for a first try"
    with httpx.Client(headers=headers) as client:
        for attempt in range(config.max_retries + 1):
            if time.monotonic() >= end:
                break
            try:
                status, content = _post(client, url, body, end)
            except httpx.HTTPError as error:
                reason = type(error).__name__
            else:
                if status == 200:
                    return _content(content)
                reason = f"HTTP {status}"
                if status not in RETRY_STATUS:
                    raise OracleError(f"the endpoint of {config.model} answers {reason}")
            if attempt < config.max_retries:
                time.sleep(max(0.0, min(0.5 * 2**attempt, end - time.monotonic())))
    raise OracleError(
        f"no answer of {config.model} within {config.deadline_s:g} s and "
        f"{config.max_retries + 1} tries, last: {reason}"
    )


def _post(
    client: httpx.Client, url: str, body: Mapping[str, object], end: float
) -> tuple[int, bytes]:
    """One request, bounded as a whole: a server that trickles cannot hold it past `end`."""
    import httpx

    left = max(0.01, end - time.monotonic())
    with client.stream("POST", url, json=body, timeout=left) as response:
        parts: list[bytes] = []
        for part in response.iter_bytes():
            parts.append(part)
            if time.monotonic() > end or sum(map(len, parts)) > MAX_ANSWER_BYTES:
                raise httpx.ReadTimeout("the answer takes too long or is too large")
        return response.status_code, b"".join(parts)


def _content(raw: bytes) -> str:
    try:
        content = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        kind = type(error).__name__
        raise OracleError(f"the endpoint's answer is no chat completion ({kind})") from error
    return content if isinstance(content, str) else ""


def _prompt(intro: str, steps: list[tuple[str, str]], admissible: tuple[str, ...]) -> str:
    lines = [intro, *(f"> {action}\n{text}" for action, text in steps)]
    return "\n\n".join([*lines, "Admissible actions:\n" + "\n".join(admissible), "Next action:"])


def _parse(answer: str, admissible: tuple[str, ...]) -> str:
    """The admissible action that the answer's last line names, else the last one it mentions."""
    lines = [line.strip(" \t>`'\".") for line in answer.strip().splitlines() if line.strip()]
    if lines and lines[-1] in admissible:
        return lines[-1]
    found = [(answer.rfind(action), len(action), action) for action in admissible]
    best = max(found, default=(-1, 0, ""))
    if best[0] < 0:
        raise OracleError(f"the model names no admissible action: {answer.strip()[:80]!r}")
    return best[2]
