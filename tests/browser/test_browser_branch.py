"""The branch page in a real browser: stepping, permalinks, the audit, hostile text, themes."""

from __future__ import annotations

import re
import statistics

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.stack import Stack
from tests.browser.story import ROOT, TAMPERED_ITERATION, XSS, XSS_ITERATION

BUDGET_MS = 100
STEP_JS = """() => {
  const host = [...document.querySelectorAll('*')].find((n) => n.shadowRoot?.querySelector('.stepper'));
  const at = host.shadowRoot.querySelector('.position');
  const times = [];
  for (let i = 0; i < 12; i += 1) {
    const before = at.textContent;
    const start = performance.now();
    const key = i % 4 < 2 ? 'ArrowRight' : 'ArrowLeft';
    document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    host.getBoundingClientRect();
    times.push(performance.now() - start);
    if (at.textContent === before) throw new Error('the step did not change');
  }
  return times;
}"""  # noqa: E501


def branch_url(run: int, iteration: int, query: str = "") -> str:
    return f"/branch?id={run}-i{iteration}g0e0t{ROOT}{query}"


def open_branch(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator(".stepper .grid")).to_be_visible()


def position(page: Page) -> str:
    return page.locator(".stepper .position").inner_text()


def test_arrow_keys_step_and_the_url_follows(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    assert position(page) == "depth 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert position(page) == "depth 2"
    assert page.url.endswith("&step=2")
    expect(page.locator(".stepper .row.selected")).to_contain_text("go to fridge 1")
    page.keyboard.press("ArrowLeft")
    assert page.url.endswith("&step=1")
    page.keyboard.press("End")
    expect(page.locator(".stepper .pane.oracle")).to_contain_text("oracle won")
    page.keyboard.press("Home")
    assert position(page) == "depth 0"
    assert "step" not in page.url
    page.keyboard.press("ArrowLeft")
    assert position(page) == f"step {ROOT - 1}, before the root"
    assert page.url.endswith("&step=-1")


def test_the_permalink_opens_the_same_step_in_a_fresh_browser(
    page: Page, browser: Browser, stack: Stack
) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    page.keyboard.press("x")
    shown = page.locator(".stepper .pane.oracle").inner_text()
    with browser.new_context() as context:
        other = context.new_page()
        other.set_default_timeout(120_000)
        other.goto(page.url)
        expect(other.locator(".stepper .pane.oracle")).to_be_visible()
        assert other.locator(".stepper .pane.oracle").inner_text() == shown


def test_everything_about_a_step_is_on_the_screen(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5, "&step=3"))
    oracle = page.locator(".stepper .pane.oracle")
    expect(oracle.locator(".action-line")).to_have_text("open fridge 1")
    expect(oracle.locator(".token.scored")).to_have_count(3)
    expect(oracle.locator(".token .token-number")).to_have_count(5)
    expect(oracle.locator("table.weights tbody tr")).to_have_count(3)
    expect(oracle.locator(".verdict.ok")).to_contain_text("recomputed from the logged logprobs")
    expect(oracle.locator(".mark.oracle")).to_have_text("oracle")
    expect(oracle.locator(".mark.probe")).to_be_visible()
    policy = page.locator(".stepper .pane.policy")
    expect(policy.locator(".probe-box")).to_contain_text("In the oracle's state")
    expect(policy).to_contain_text(f"step {ROOT + 3} of")


def test_weights_are_audited_and_a_tampered_one_is_found(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    expect(page.locator("[data-audit=ok]")).to_contain_text("weights audited")
    expect(page.locator(".badges")).to_contain_text("restore verified")
    open_branch(page, branch_url(stack.sero, TAMPERED_ITERATION))
    expect(page.locator("[data-audit=gap]")).to_contain_text("at depth 3")


def test_the_largest_drop_names_its_token(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    expect(page.locator(".ribbon-caption")).to_contain_text(re.compile("largest drop at depth 2"))
    page.keyboard.press("x")
    assert position(page) == "depth 2"


def test_help_and_token_modes(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    page.keyboard.press("?")
    expect(page.locator(".stepper .help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".stepper .help")).to_be_hidden()
    page.keyboard.press("t")
    expect(page.locator(".token-number").first).to_contain_text("%")
    assert "tok=prob" in page.url


def test_hostile_text_stays_text(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, XSS_ITERATION))
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".stepper .pane.oracle .text.observation")).to_have_text(XSS)
    assert page.locator(".stepper img, .stepper script, .stepper a").count() == 0
    page.goto(f"/episode?id={stack.sero}-i{XSS_ITERATION}g0e0")
    expect(page.get_by_text(XSS).first).to_be_visible()
    assert page.locator("[data-testid=stMain] img, [data-testid=stMain] script").count() == 0
    assert page.locator("a[href^=javascript]").count() == 0
    assert page.evaluate("window.__xss === undefined")


def test_a_step_is_fast(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    times = page.evaluate(STEP_JS)
    assert statistics.median(times) < BUDGET_MS, times


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_the_component_follows_the_theme(page: Page, stack: Stack) -> None:
    open_branch(page, branch_url(stack.sero, 5))
    theme = page.locator(".stepper").get_attribute("data-theme")
    color = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    is_dark = sum(int(part) for part in re.findall(r"\d+", color)[:3]) < 3 * 128
    assert theme == ("dark" if is_dark else "light")
    assert is_dark == page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_an_unknown_branch_says_so(page: Page, stack: Stack) -> None:
    page.goto(f"/branch?id={stack.sero}-nothing")
    expect(page.get_by_text("does not exist")).to_be_visible()
