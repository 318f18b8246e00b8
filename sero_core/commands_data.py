"""What `sero data alfworld` does: official games from the network or an archive, checked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from sero_core.envs.alfworld.release import (
    RELEASE,
    SplitReport,
    check_release,
    default_root,
    fetch,
    install,
)
from sero_core.envs.alfworld.tasks import RELEASE_FOLDER

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


def _download(target: Path, say: Say) -> list[SplitReport]:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as folder:
        say("downloading ALFWorld's game files")
        archive = fetch(Path(folder))
        say(f"unpacking and checking {archive.name}")
        return install(archive, target)
