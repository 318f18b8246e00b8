"""One question to a language model behind an OpenAI-compatible endpoint. Training only.

The key is read from the environment variable that the config names, at the moment of the request;
it is in no config, no log line and no error message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from sero_core.types import OracleError

if TYPE_CHECKING:
    import httpx

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
MAX_ANSWER_BYTES = 1_000_000


class ChatEndpoint(BaseModel):
    """Where a model answers, and how long it may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = Field(
        pattern=r"^https?://", description="Endpoint, for example http://localhost:8000/v1"
    )
    model: str = Field(min_length=1, description="Model name that the endpoint knows")
    api_key_env: str = Field(
        default="",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$",
        description="NAME of the environment variable that holds the key; empty: no key",
    )
    deadline_s: float = Field(default=60.0, gt=0, description="For one answer, retries included")
    max_retries: int = Field(default=3, ge=0, le=20, description="After the first try")
    max_tokens: int = Field(default=512, ge=1, description="Of one answer")
    temperature: float = Field(default=0.0, ge=0, le=2, description="Of the sampling")
    history_steps: int = Field(
        default=20, ge=0, description="Steps of the episode that it is shown"
    )


def ask(config: ChatEndpoint, system: str, prompt: str) -> str:
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
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
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


def episode_text(intro: str, steps: list[tuple[str, str]], admissible: tuple[str, ...]) -> str:
    """An episode as a model is shown it: (action, what it showed) pairs, then what can be done."""
    lines = [intro, *(f"> {action}\n{text}" for action, text in steps)]
    return "\n\n".join([*lines, "Admissible actions:\n" + "\n".join(admissible)])


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
