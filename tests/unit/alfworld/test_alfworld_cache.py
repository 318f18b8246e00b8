"""The cache of compiled games: hits, damage, several processes at once."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from sero_core.envs.alfworld import cache
from sero_core.envs.alfworld.cache import compile_directory, load_game
from sero_core.envs.alfworld.compiler import compile_game
from sero_core.types import Task
from tests.support.alfworld import handmade_game, write_task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    cache.clear_memory()
    return write_task(tmp_path / "data", handmade_game())


def load(task: Task, directory: Path) -> cache.Game:
    return load_game(Path(task.path), task.content_hash, directory)


def test_the_second_load_does_not_compile(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(task, tmp_path / "cache")
    cache.clear_memory()
    monkeypatch.setattr(cache, "compile_game", None)
    assert load(task, tmp_path / "cache") == first


def test_memory_holds_one_game_per_content(task: Task, tmp_path: Path) -> None:
    assert load(task, tmp_path / "cache") is load(task, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"engine_version": 0}'])
def test_a_damaged_entry_is_compiled_again(
    task: Task, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    game = load(task, tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_text(damage)
    cache.clear_memory()
    assert load(task, tmp_path / "cache") == game
    assert "compiled again" in caplog.text
    cache.clear_memory()
    assert load(task, tmp_path / "cache") == game


def test_the_number_of_games_in_memory_is_bounded(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_GAMES_IN_MEMORY", 2)
    first = load(task, tmp_path / "cache")
    for number in range(3):
        other = write_task(
            tmp_path / "data", handmade_game(task=f"task {number}."), trial=f"{number}"
        )
        load(other, tmp_path / "cache")
    assert load(task, tmp_path / "cache") is not first


def test_several_processes_fill_one_directory(tmp_path: Path) -> None:
    for number in range(6):
        game = handmade_game(task=f"task {number}.")
        write_task(tmp_path / "data", game, trial=f"trial_{number}")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [(tmp_path / "data", tmp_path / "cache")] * 4
        reports = pool.starmap(compile_directory, jobs)
    assert all(report.num_compiled + report.num_cached == 6 for report in reports)
    entries = sorted((tmp_path / "cache").iterdir())
    assert len(entries) == 6
    assert all(json.loads(entry.read_text())["task_text"] for entry in entries)


def test_compile_directory_reports_progress_and_names_failures(tmp_path: Path) -> None:
    write_task(tmp_path / "data", handmade_game(), trial="trial_1")
    broken = write_task(tmp_path / "data", handmade_game(domain="(define)"), trial="trial_2")
    calls: list[tuple[int, int]] = []
    report = compile_directory(
        tmp_path / "data", tmp_path / "cache", lambda done, total: calls.append((done, total))
    )
    assert calls == [(1, 2), (2, 2)]
    assert report.num_compiled == 1
    ((path, reason),) = report.failures
    assert path == broken.path
    assert "unknown PDDL domain" in reason
    assert compile_directory(tmp_path / "data", tmp_path / "cache").num_cached == 1


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no game\.tw-pddl"):
        compile_directory(tmp_path)


def test_the_cache_directory_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERO_CACHE", str(tmp_path))
    assert cache.default_directory() == tmp_path / "alfworld"


def test_compiling_is_deterministic() -> None:
    raw = json.dumps(handmade_game()).encode()
    assert compile_game(raw) == compile_game(raw)
