"""Screenshots of every page of a running dashboard, into docs/images/.

    python scripts/screenshots.py [http://127.0.0.1:8501] [--api http://127.0.0.1:8000]

Which run, branch and episode are shown is found through the API: the run with the most branches, of
it a long won branch of the newest iteration, and the runs that share its environment to compare.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from backend.client import SeroClient
from backend.schemas import BranchSummary
from backend.settings import Settings

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
SETTLE_MS = 2500
SETTLED = """() => ![...document.querySelectorAll('[data-testid=stSkeleton]')].some(
  (node) => node.checkVisibility() && node.getBoundingClientRect().top < innerHeight)"""
NUM_COMPARED = 4


@dataclass(frozen=True, slots=True)
class Shot:
    """One image: `keys` are pressed, `opened` are texts clicked, once the page has settled."""

    name: str
    path: str
    height: int
    theme: str = "light"
    keys: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dashboard", nargs="?", default=Settings.from_env().dashboard_url)
    parser.add_argument("--api", default=Settings.from_env().api_url)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--width", type=int, default=1440)
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        sys.exit("Chromium is not installed; on Debian: apt-get install chromium")
    with SeroClient(arguments.api) as client:
        shots = choose(client)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for shot in shots:
            target = arguments.out / f"{shot.name}.png"
            take(browser, arguments.dashboard.rstrip("/"), shot, target, arguments.width)
            print(f"{target}  {shot.path}")
        browser.close()


def choose(client: SeroClient) -> list[Shot]:
    """The pages to show. Exits with one sentence where there is nothing to show yet."""
    runs = client.runs(limit=100).items
    started = [run for run in runs if run.iteration is not None]
    if not started:
        sys.exit("no run has logged an iteration yet; submit one and try again")
    best = max(started, key=lambda run: (run.num_branches, run.iteration or 0))
    alike = [run for run in started if run.env == best.env and run.id != best.id]
    compared = [best.id, *(run.id for run in alike)][:NUM_COMPARED]
    shots = [
        Shot("runs", "/", 620),
        Shot("submit", "/submit", 1000, opened=("sero",)),
        Shot("run", f"/run?id={best.id}", 1180),
        Shot("run-dark", f"/run?id={best.id}", 1180, "dark"),
        Shot("run-log", f"/run?id={best.id}&tab=Log", 1000),
        Shot("evaluations", f"/run?id={best.id}&tab=Evaluations", 1000),
        Shot("branches", f"/branches?run={best.id}", 900),
        Shot("compare", f"/compare?runs={','.join(map(str, sorted(compared)))}", 1900),
        Shot("queue", "/queue", 720),
    ]
    branch = _telling_branch(client, best.id)
    if branch is not None:
        where = f"/branch?id={branch.id}"
        shots += [
            Shot("branch", where, 1050, keys=("x", "ArrowRight")),
            Shot("branch-dark", where, 1050, "dark", keys=("x", "ArrowRight")),
            Shot("episode", f"/episode?id={branch.run_id}-{branch.episode_id}", 1000),
        ]
    return shots


def _telling_branch(client: SeroClient, run_id: int) -> BranchSummary | None:
    """A branch that shows something: won by the oracle, lost by the policy, long, newest."""
    for is_episode_won in (False, None):
        found = client.branches(
            run_id=run_id, outcome="won", is_episode_won=is_episode_won, limit=200
        ).items
        if found:
            return max(found, key=lambda item: (min(item.num_steps, 8), item.iteration))
    return next(iter(client.branches(run_id=run_id, limit=1).items), None)


def take(browser: Browser, base: str, shot: Shot, target: Path, width: int) -> None:
    """Open a page in a fresh profile, wait until it has settled, save the image."""
    context = browser.new_context(
        viewport={"width": width, "height": shot.height}, color_scheme=shot.theme
    )
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.goto(base + shot.path, wait_until="domcontentloaded")
    page.locator("[data-testid=stMain] :is(h1, h2)").first.wait_for()
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(SETTLE_MS)
    for text in shot.opened:
        page.get_by_test_id("stExpander").get_by_text(text, exact=True).click()
    for key in shot.keys:
        page.keyboard.press(key)
    if shot.opened or shot.keys:
        page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=str(target))
    context.close()


if __name__ == "__main__":
    main()
