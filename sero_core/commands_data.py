"""What `sero data alfworld` and `sero data webshop` do: data from files or the network, checked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from sero_core.envs.alfworld.release import (
    RELEASE,
    SplitReport,
    check_release,
    default_root,
    fetch,
    install,
)
from sero_core.envs.alfworld.tasks import RELEASE_FOLDER
from sero_core.envs.webshop.catalogue import (
    ATTRIBUTES_FILE,
    HUMAN_FILE,
    PRODUCTS_FILE,
    generate_catalogue,
)
from sero_core.envs.webshop.manifest import Manifest, verify
from sero_core.envs.webshop.nouns import choose_nouns
from sero_core.envs.webshop.prepare import Seeds, Sources, prepare

Say = Callable[[str], None]


def get_alfworld(root: Path | None, archive: Path | None, *, say: Say) -> None:
    """Install the official games below `root`, from `archive` or by download, and say what is
    there. With all splits in place and no archive it only checks them.

    Errors: `DataError` as `install`, `fetch` and `check_release` raise it.
    """
    target = root or default_root()
    if archive is not None:
        say(f"unpacking and checking {archive}")
        reports = install(archive, target)
    elif all((target / RELEASE_FOLDER / split).is_dir() for split in RELEASE):
        reports = check_release(target)
    else:
        reports = _download(target, say)
    for report in reports:
        say(describe(report))
    say(f"to play them: --set env.data_root={target}")


def describe(report: SplitReport) -> str:
    """One line about a split."""
    if report.state == "absent":
        return f"{report.split}: absent (the archive does not hold it)"
    skipped = "".join(f", {n} skipped: {why}" for why, n in sorted(report.skipped.items()))
    known = "as released" if report.is_digest_checked else "not checked: no digest of it is known"
    return (
        f"{report.split}: {report.state}, {report.num_games} games{skipped}, "
        f"digest {report.digest[:16]} ({known})"
    )


def generate_webshop(out: Path, num_products: int, seed: int, *, say: Say) -> None:
    """Write a generated catalogue in WebShop's file format.

    Errors: `CatalogueError` where the folder holds one already.
    """
    generate_catalogue(out, num_products, seed)
    say(f"{num_products} products of seed {seed} are in {out}; to make a shop of them:")
    names = (PRODUCTS_FILE, ATTRIBUTES_FILE, HUMAN_FILE)
    files = " ".join(
        f"--{option} {out / name}"
        for option, name in zip(("products", "attributes", "human"), names, strict=True)
    )
    say(f"  sero data webshop prepare {files} --out SHOP")


def prepare_webshop(
    files: tuple[Path, Path, Path | None],
    out: Path,
    nouns: tuple[Path | None, str],
    seeds: tuple[int, int],
    num_rows: int | None,
    *,
    say: Say,
) -> None:
    """Make a shop of the original files (products, attributes, human instructions or None).

    Errors: `CatalogueError` as `prepare` and `choose_nouns` raise it.
    """
    tag, name = choose_nouns(*nouns)
    say(f"nouns of titles: {name}")
    products, attributes, human = files
    sources = Sources(products, attributes, human, tag, name, num_rows)
    with _progress_bar(say) as progress:
        manifest = prepare(sources, out, progress, Seeds(*seeds))
    for line in describe_shop(manifest):
        say(line)


def verify_webshop(folder: Path, *, say: Say) -> None:
    """Read a shop's every byte. Errors: `CatalogueError` naming the file that differs."""
    for line in describe_shop(verify(folder)):
        say(line)
    say("every file is as the manifest says")


def describe_shop(manifest: Manifest) -> list[str]:
    """What is in a shop, and what leaks between the parts of its splits."""
    lines = [f"{manifest.num_products} products, content hash {manifest.content_hash}"]
    for kind, counts in manifest.goals.items():
        shares = ", ".join(
            f"{num / max(1, counts.num_goals):.1%} solvable under the reward {name}"
            for name, num in counts.solvable.items()
        )
        lines.append(f"{kind}: {counts.num_goals} goals, {shares}")
    lines += [
        f"split {leak.rule}, {leak.kind} {leak.part}: {leak.num_goals} goals for "
        f"{leak.num_products} products; train wants {leak.num_products_known} of these products, "
        f"which {leak.num_goals_known} of these goals are for"
        for leak in manifest.leaks
        if leak.num_goals
    ]
    return lines


@contextmanager
def _progress_bar(say: Say) -> Generator[Callable[[str, float], None]]:
    """A bar per step on a terminal, else a line per step."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        tasks = {"": bars.add_task("start", total=1.0)}
        last = [""]

        def show(step: str, share: float) -> None:
            if step not in tasks:
                bars.update(tasks[last[0]], completed=1.0)
                tasks[step] = bars.add_task(step, total=1.0)
                last[0] = step
                if not console.is_terminal:
                    say(step)
            bars.update(tasks[step], completed=share)

        yield show
        bars.update(tasks[last[0]], completed=1.0)


def _download(target: Path, say: Say) -> list[SplitReport]:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as folder:
        say("downloading ALFWorld's game files")
        archive = fetch(Path(folder))
        say(f"unpacking and checking {archive.name}")
        return install(archive, target)
