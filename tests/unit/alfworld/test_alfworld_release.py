"""Installing the official games: whole and checked, or nothing and a clear error."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sero_core.cli import app
from sero_core.commands_data import describe
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.release import (
    RELEASE,
    Expected,
    check_release,
    fetch,
    install,
    split_digest,
)
from sero_core.envs.alfworld.tasks import DataError, list_tasks, scan

COUNTS = {"train": 6, "valid_seen": 3, "valid_unseen": 2}
FORMATS = {"games.zip": "zip", "games.tar": "tar", "games.tar.gz": "gztar", "games.tar.xz": "xztar"}


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data root in the official layout; read only."""
    root = tmp_path_factory.mktemp("games")
    generate(root, seed=3, difficulty="small", counts=COUNTS)
    return root


@pytest.fixture(scope="module")
def expected(games: Path) -> dict[str, Expected]:
    digests = {split: split_digest(list_tasks(games, split)) for split in COUNTS}
    return {split: Expected(count, digests[split]) for split, count in COUNTS.items()}


@pytest.fixture
def copy(games: Path, tmp_path: Path) -> Path:
    """The same games, to be damaged."""
    return Path(shutil.copytree(games, tmp_path / "copy"))


def pack(root: Path, name: str = "games.tar") -> Path:
    target = root.parent / f"packed-{name}"
    made = shutil.make_archive(str(target), FORMATS[name], root)
    return Path(made)


def first_game(root: Path, split: str = "train") -> Path:
    return sorted((root / "json_2.1.1" / split).glob("*/*/game.tw-pddl"))[0]


def nothing_installed(root: Path) -> bool:
    return list(root.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS)
def test_an_archive_becomes_a_checked_data_root(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected], name: str
) -> None:
    (copy / "json_2.1.1" / "README").write_text("not a game")
    root = tmp_path / "root"
    reports = install(pack(copy, name), root, expected)
    assert [(r.split, r.state, r.num_games) for r in reports] == [
        (split, "installed", count) for split, count in COUNTS.items()
    ]
    assert [path.name for path in root.iterdir()] == ["json_2.1.1"]
    assert sorted(path.name for path in (root / "json_2.1.1").iterdir()) == sorted(COUNTS)
    assert len(list_tasks(root, "train")) == 6
    assert [r.state for r in check_release(root, expected)] == ["already there"] * 3


def test_the_split_folders_may_lie_anywhere_in_the_archive(
    games: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    shutil.copytree(games / "json_2.1.1", tmp_path / "copy" / "some" / "where")
    reports = install(pack(tmp_path / "copy"), tmp_path / "root", expected)
    assert {report.state for report in reports} == {"installed"}


def test_a_missing_split_is_absent_and_can_follow_later(
    games: Path, copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    shutil.rmtree(copy / "json_2.1.1" / "valid_unseen")
    root = tmp_path / "root"
    reports = install(pack(copy), root, expected)
    assert [r.state for r in reports] == ["installed", "installed", "absent"]
    assert describe(reports[2]) == "valid_unseen: absent (the archive does not hold it)"
    whole = Path(shutil.copytree(games, tmp_path / "whole"))
    before = first_game(root).stat().st_ino
    reports = install(pack(whole, "games.zip"), root, expected)
    assert [r.state for r in reports] == ["already there", "already there", "installed"]
    assert first_game(root).stat().st_ino == before


def test_a_digest_that_nobody_knows_is_said_to_be_unchecked(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    unknown = {**expected, "train": Expected(6, None)}
    reports = install(pack(copy), tmp_path / "root", unknown)
    assert "(not checked: no digest of it is known)" in describe(reports[0])
    assert "(as released)" in describe(reports[1])


def test_half_a_split_installs_nothing(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    shutil.rmtree(first_game(copy).parent)
    root = tmp_path / "root"
    with pytest.raises(DataError, match=r"split train .* has 5 playable games, expected 6"):
        install(pack(copy), root, expected)
    assert nothing_installed(root)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_an_archive_that_was_cut_off(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected], name: str, kept: float
) -> None:
    archive = pack(copy, name)
    raw = archive.read_bytes()
    archive.write_bytes(raw[: int(len(raw) * kept)])
    root = tmp_path / "root"
    with pytest.raises(DataError, match=r"download complete|playable games|not complete JSON"):
        install(archive, root, expected)
    assert nothing_installed(root)


def test_truncated_json_names_the_file(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    game = first_game(copy)
    game.write_bytes(game.read_bytes()[:-20])
    root = tmp_path / "root"
    with pytest.raises(DataError, match="not complete JSON") as caught:
        install(pack(copy), root, expected)
    assert game.parent.name in str(caught.value)
    assert nothing_installed(root)


def test_unsolvable_games_are_counted_skips(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    game = first_game(copy)
    game.write_text(json.dumps(json.loads(game.read_text()) | {"solvable": False}))
    with pytest.raises(DataError, match="5 playable games, expected 6; skipped: 1 marked unsolv"):
        install(pack(copy), tmp_path / "root", expected)
    fewer = {**expected, "train": Expected(5, split_digest(scan(copy, "train").tasks))}
    reports = install(pack(copy), tmp_path / "root", fewer)
    assert reports[0].skipped == {"marked unsolvable": 1}
    assert "5 games, 1 skipped: marked unsolvable" in describe(reports[0])


def test_other_contents_are_refused(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    game = first_game(copy, "valid_seen")
    game.write_bytes(game.read_bytes() + b" ")
    root = tmp_path / "root"
    with pytest.raises(DataError, match=r"split valid_seen .* has digest"):
        install(pack(copy), root, expected)
    assert nothing_installed(root)


def test_games_that_are_there_are_not_overwritten(
    copy: Path, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    root = Path(shutil.copytree(copy, tmp_path / "root"))
    shutil.rmtree(first_game(root).parent)
    with pytest.raises(DataError, match="has 5 playable games"):
        install(pack(copy), root, expected)
    assert len(list_tasks(root, "train")) == 5


def tar_with(path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    member.size = len(content)
    with tarfile.open(path, "w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "name", ["../game.tw-pddl", "a/../../game.tw-pddl", "/tmp/game.tw-pddl", "a\\..\\game.tw-pddl"]
)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    archive, root = tmp_path / f"evil.{kind}", tmp_path / "deep" / "root"
    if kind == "tar":
        tar_with(archive, tarfile.TarInfo(name), b"evil")
    else:
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr(name, "evil")
    with pytest.raises(DataError, match="a path outside the archive; nothing was installed"):
        install(archive, root)
    assert nothing_installed(root)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", f"evil.{kind}", "root"]


def test_links_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("json_2.1.1/train/game/trial/game.tw-pddl")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(DataError, match="a link or a device"):
        install(tar_with(tmp_path / "evil.tar", link), tmp_path / "root")
    info = zipfile.ZipInfo("json_2.1.1/train/game/trial/game.tw-pddl")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as opened:
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="a link"):
        install(tmp_path / "evil.zip", tmp_path / "root")


def test_what_is_no_archive_of_games(tmp_path: Path, copy: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(DataError, match="is a folder, expected an archive"):
        install(copy, root)
    with pytest.raises(DataError, match="does not exist"):
        install(tmp_path / "absent.zip", root)
    (tmp_path / "page.html").write_text("<html>404</html>")
    with pytest.raises(DataError, match="cannot be read to its end"):
        install(tmp_path / "page.html", root)
    with pytest.raises(DataError, match=r"expected one folder with train.*found 0"):
        install(pack(copy / "json_2.1.1" / "train"), root)
    with pytest.raises(DataError, match="no split of train"):
        check_release(root)


@pytest.fixture
def server(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server that offers the archive; the address of it."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "alfworld"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the downloader's partial files
    archive = pack(copy, "games.zip")
    folder = str(archive.parent)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=folder)  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/{archive.name}"
        http.shutdown()
        thread.join()


def test_the_packages_own_downloader_fetches(
    server: str, tmp_path: Path, expected: Mapping[str, Expected]
) -> None:
    pytest.importorskip("alfworld", reason="the alfworld package is not installed")
    archive = fetch(tmp_path / "download", server)
    reports = install(archive, tmp_path / "root", expected)
    assert {report.state for report in reports} == {"installed"}


def test_an_unreachable_or_missing_file_says_what_to_do(server: str, tmp_path: Path) -> None:
    pytest.importorskip("alfworld", reason="the alfworld package is not installed")
    with pytest.raises(DataError, match=r"404.*pass --from FILE"):
        fetch(tmp_path / "download", server + ".absent")
    with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:9/x.zip.*--from FILE"):
        fetch(tmp_path / "download", "http://127.0.0.1:9/x.zip")


def test_the_command_ends_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["data", "alfworld", "--root", str(tmp_path / "r"), "--from", str(tmp_path / "x.zip")]
    )
    assert done.exit_code == 2
    assert done.stderr == f"error: archive {tmp_path / 'x.zip'} does not exist\n"


@pytest.mark.slow
@pytest.mark.skipif("SERO_DATA" not in os.environ, reason="SERO_DATA does not point to real games")
def test_the_official_games_have_the_recorded_digests() -> None:
    reports = check_release(Path(os.environ["SERO_DATA"]), RELEASE)
    for report in reports:
        if report.split != "valid_unseen":
            assert (report.state, report.is_digest_checked) == ("already there", True)


def test_the_counts_of_the_release() -> None:
    counts = {split: want.num_games for split, want in RELEASE.items()}
    assert counts == {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
    assert RELEASE["valid_unseen"].digest is None
