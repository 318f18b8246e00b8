"""A policy's size comes from its safetensors header, without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from backend.policy_size import DEMO, policy_size


def write_model(folder: Path, header: dict[str, object]) -> None:
    data = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data)
    config = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config))


def test_the_header_is_counted(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    write_model(tmp_path, {"__metadata__": {"format": "pt"}, "a": entry, "b": entry})
    size = policy_size(str(tmp_path))
    assert size is not None
    assert (size.num_parameters, size.hidden, size.layers, size.vocab) == (24, 8, 2, 100)


def test_the_demo_policy_is_as_large_as_its_file() -> None:
    size = policy_size("demo")
    assert size is not None
    file_bytes = (DEMO / "model.safetensors").stat().st_size
    assert abs(size.num_parameters * 4 - file_bytes) < 100_000


def test_a_folder_that_is_not_there_has_no_size(tmp_path: Path) -> None:
    assert policy_size(str(tmp_path / "none")) is None
    write_model(tmp_path, {})
    (tmp_path / "config.json").write_text("{}")
    assert policy_size(str(tmp_path)) is None
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    assert policy_size(str(tmp_path)) is None
