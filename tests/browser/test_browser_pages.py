"""The other pages in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.stack import NUM_ITERATIONS, Stack


def test_the_runs_table_shows_every_run(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_text(re.compile(r"Showing ([45]) of \1 runs"))).to_be_visible()
    expect(page.get_by_text("as of ")).to_be_visible()
    page.goto("/?q=grpo")
    expect(
        page.get_by_text(re.compile(r"Showing 1 of 1 runs that match \([45] in all"))
    ).to_be_visible()


def test_a_row_opens_its_run(page: Page, stack: Stack) -> None:
    page.goto("/?q=grpo")
    expect(page.get_by_text("Showing 1 of 1")).to_be_visible()
    box = page.get_by_test_id("stDataFrame").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 70, box["y"] + 52)
    page.wait_for_url(f"**/run?id={stack.grpo}")
    expect(page.get_by_role("heading", name=f"#{stack.grpo} grpo demo")).to_be_visible()


def test_the_run_page_has_curves_and_numbers(page: Page, stack: Stack) -> None:
    page.goto(f"/run?id={stack.sero}")
    expect(page.get_by_text(f"{NUM_ITERATIONS} / {NUM_ITERATIONS}")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").nth(3)).to_be_visible()
    expect(page.get_by_text("1 logged values are NaN")).to_be_visible()


def test_a_tab_is_a_link(page: Page, stack: Stack) -> None:
    page.goto(f"/run?id={stack.live}&tab=Log")
    expect(page.get_by_text("iteration 7/12 done")).to_be_visible()
    page.get_by_role("tab", name="Evaluations").click()
    expect(page.get_by_text("Newest evaluation", exact=True)).to_be_visible()
    page.wait_for_url("**tab=Evaluations**")


def test_cancelling_asks_first(page: Page, stack: Stack) -> None:
    page.goto(f"/run?id={stack.live}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("It stops after writing a checkpoint")).to_be_visible()
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_be_hidden()


def test_branch_search_filters_and_keeps_them_in_the_url(page: Page, stack: Stack) -> None:
    page.goto(f"/branches?run={stack.sero}&policy=lost&from_iteration=1&to_iteration=4")
    expect(page.get_by_text("that match (36 in all)")).to_be_visible()
    page.get_by_text("oracle failed: dead end").click()
    expect(page.get_by_text("No branch matches the filters")).to_be_visible()
    page.wait_for_url("**outcome=dead_end**")


def test_compare_shows_differences_and_curves(page: Page, stack: Stack) -> None:
    page.goto(f"/compare?runs={stack.sero},{stack.grpo}")
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").nth(2)).to_be_visible()
    expect(page.get_by_text("Seen panel in numbers", exact=True)).to_be_visible()


def test_the_form_shows_field_errors_and_submits_once(page: Page) -> None:
    page.goto("/submit?preset=sero_demo")
    expect(page.get_by_text("This config is valid.")).to_be_visible()
    name = page.get_by_role("textbox", name="name", exact=True)
    name.fill("!not a name")
    name.press("Enter")
    expect(page.get_by_text("1 wrong field")).to_be_visible()
    expect(page.get_by_role("button", name="Queue 1 run")).to_be_disabled()
    page.get_by_role("textbox", name="name").first.fill("from the form")
    page.keyboard.press("Enter")
    expect(page.get_by_text("This config is valid.")).to_be_visible()
    page.get_by_role("button", name="Queue 1 run").click()
    expect(page.get_by_text("Queued as run #5.")).to_be_visible()
    page.get_by_role("link", name="Open run #5").click()
    expect(page.get_by_role("heading", name="#5 from the form")).to_be_visible()


def test_the_queue_lists_jobs_workers_and_health(page: Page) -> None:
    page.goto("/queue")
    expect(page.get_by_text("jobs running")).to_be_visible()
    expect(page.get_by_text("1 alive")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame")).to_have_count(2)


def test_nothing_is_loaded_from_elsewhere(page: Page, stack: Stack) -> None:
    foreign: list[str] = []
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((stack.dashboard, stack.dashboard.replace("http", "ws")))
            or request.url.startswith(("data:", "blob:"))
            else foreign.append(request.url)
        ),
    )
    page.goto(f"/run?id={stack.sero}")
    expect(page.get_by_test_id("stVegaLiteChart").first).to_be_visible()
    page.wait_for_timeout(2000)
    assert foreign == []
