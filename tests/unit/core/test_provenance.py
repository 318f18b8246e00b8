"""The code of a run: the commit of this checkout, or of the image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sero_core.provenance import current_code

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh() -> None:
    current_code.cache_clear()


def test_an_image_names_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERO_GIT_COMMIT", "abc123")
    code = current_code()
    assert (code.commit, code.is_dirty) == ("abc123", False)
    assert code.packages["numpy"]


def test_a_checkout_names_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERO_GIT_COMMIT", raising=False)
    args = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    expected = subprocess.run(args, capture_output=True, text=True, check=True).stdout.strip()
    code = current_code()
    assert code.commit == expected
    assert code.is_dirty in (True, False)


def test_without_git_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERO_GIT_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert (current_code().commit, current_code().is_dirty) == (None, None)
