"""One `sero up` for all chaos tests; each test breaks something and the next finds it whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import Services, services


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for marker in (pytest.mark.chaos, pytest.mark.service, pytest.mark.slow):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def running() -> Iterator[Services]:
    with services() as made:
        yield made
