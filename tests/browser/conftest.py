"""Chromium against the real dashboard, the real API and a real PostgreSQL, once per session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.browser.stack import Stack, running

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome")
                 if (found := shutil.which(name))), None)  # fmt: skip
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 120_000
"""A loaded machine is slow, not wrong; what has a budget measures it in the page."""

expect.set_options(timeout=TIMEOUT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.service)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as made:
        yield made


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield made
    made.close()


@pytest.fixture(scope="session")
def stack(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, stack: Stack, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A fresh browser profile; an uncaught error in the page fails the test. `theme` by marker."""
    theme = getattr(request, "param", "light")
    context = browser.new_context(
        base_url=stack.dashboard, color_scheme=theme, viewport={"width": 1280, "height": 900}
    )
    context.set_default_timeout(TIMEOUT_MS)
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    context.close()
    assert errors == []
