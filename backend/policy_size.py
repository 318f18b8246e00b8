"""How large a policy is, from its folder alone: safetensors headers and config.json, no torch."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import sero_core

HEADER_LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 100_000_000
DEMO = Path(sero_core.__file__).parent / "demo_policy"


@dataclass(frozen=True, slots=True)
class PolicySize:
    """`hidden`, `layers`, `vocab` as in the model's config.json."""

    num_parameters: int
    hidden: int
    layers: int
    vocab: int


def policy_size(path: str) -> PolicySize | None:
    """None: this machine has no such folder, or it holds no model (a worker's may)."""
    folder = DEMO if path == "demo" else Path(path)
    config = folder / "config.json"
    files = sorted(folder.glob("*.safetensors"))
    if not config.is_file() or not files:
        return None
    stamp = max(file.stat().st_mtime_ns for file in (config, *files))
    return _read(config, tuple(files), stamp)


@lru_cache(maxsize=64)
def _read(config: Path, files: tuple[Path, ...], stamp: int) -> PolicySize | None:
    data = json.loads(config.read_text())
    data = data.get("text_config", data)
    try:
        return PolicySize(
            num_parameters=sum(_num_values(file) for file in files),
            hidden=int(data["hidden_size"]),
            layers=int(data["num_hidden_layers"]),
            vocab=int(data["vocab_size"]),
        )
    except (KeyError, ValueError, struct.error):
        return None


def _num_values(file: Path) -> int:
    """Errors: ValueError for a header that is none."""
    with file.open("rb") as stream:
        (length,) = HEADER_LENGTH.unpack(stream.read(HEADER_LENGTH.size))
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"{file}: a header of {length} bytes")
        header = json.loads(stream.read(length))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
