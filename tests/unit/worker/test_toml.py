"""Every config survives the way through JSON and TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.config import RunConfig, load_config, parse_config
from worker.toml import to_toml

CONFIGS = sorted((Path(__file__).resolve().parents[3] / "configs").rglob("*.toml"))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_is_read_back(data: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(data)) == data  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_presets_survive(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    written = tmp_path / "config.toml"
    written.write_text(to_toml(config.model_dump(mode="json")))
    assert load_config(written) == config


def test_an_absent_section_stays_absent() -> None:
    text = to_toml(RunConfig().model_dump(mode="json"))
    assert "sero" not in tomllib.loads(text)
    assert parse_config(tomllib.loads(text), "test").sero is None
