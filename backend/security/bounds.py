"""What a run's config may name on this server: folders, endpoints, secrets.

A config comes from whoever may submit. So a path counts only below a root that the server's
settings name, an endpoint only if it is on the settings' list, and a secret is the name of a
variable whose name begins with `SERO_SECRET_`. The API checks when a run is submitted, the worker
again before it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

PATHS: Final = frozenset({"path", "data_root", "checkpoint", "adapter_path"})
"""Names of config fields that are folders or files; `demo` and the empty text are not paths."""
ENDPOINTS: Final = frozenset({"base_url"})
SECRETS: Final = frozenset({"api_key_env"})
SECRET_PREFIX: Final = "SERO_SECRET_"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Absolute roots, and endpoints as `scheme://host[:port]/path` prefixes."""

    roots: tuple[Path, ...]
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """A config value that this server does not take: dotted field, what is wrong, what is."""

    field: str
    message: str
    allowed: str


def violations(config: Mapping[str, JsonValue], bounds: Bounds) -> list[Violation]:
    """Every value of a config (as JSON) that lies outside of the bounds."""
    found: list[Violation] = []
    for field, value in _leaves(config, ""):
        name = field.rpartition(".")[2]
        if not isinstance(value, str) or not value:
            continue
        if name in PATHS and value != "demo" and not is_below(value, bounds.roots):
            roots = ", ".join(map(str, bounds.roots)) or "none"
            message = f"{value!r} is outside of the folders that this server opens"
            found.append(Violation(field, message, f"below one of SERO_ROOTS: {roots}"))
        if name in ENDPOINTS and not is_listed(value, bounds.endpoints):
            listed = ", ".join(bounds.endpoints) or "none"
            message = f"{value!r} is not an endpoint that this server calls"
            found.append(Violation(field, message, f"one of SERO_ENDPOINTS: {listed}"))
        if name in SECRETS and not value.startswith(SECRET_PREFIX):
            message = f"{value!r} may not be read as a secret"
            found.append(Violation(field, message, f"a name that begins with {SECRET_PREFIX}"))
    return found


def is_below(path: str, roots: Sequence[Path]) -> bool:
    """Whether a path lies in one of the roots after links and `..` are resolved."""
    try:
        real = Path(os.path.realpath(Path(path).expanduser()))
    except (OSError, ValueError, RuntimeError):
        return False
    return any(real.is_relative_to(os.path.realpath(root)) for root in roots)


def is_listed(url: str, endpoints: Sequence[str]) -> bool:
    """Whether a URL is one of the endpoints or lies below one, on a path boundary."""
    if any(mark in url for mark in ("..", "@", "\\", "%2e", "%2E")):
        return False
    plain = url.rstrip("/")
    return any(
        plain == entry.rstrip("/") or plain.startswith(entry.rstrip("/") + "/")
        for entry in endpoints
    )


def _leaves(value: JsonValue | Mapping[str, JsonValue], where: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, inner in cast(Mapping[str, JsonValue], value).items():
            yield from _leaves(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{where}.{index}")
    else:
        yield where, value
