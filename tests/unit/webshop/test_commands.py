"""`sero data webshop generate | prepare | verify` from the outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sero_core.cli import app
from sero_core.envs.webshop.manifest import read_manifest


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", "webshop", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("webshop")
    said = run("generate", "--num-products", 60, "--seed", 4, "--out", folder / "catalogue")
    assert "60 products of seed 4" in said
    return folder


def files(folder: Path) -> list[object]:
    catalogue = folder / "catalogue"
    return [
        "--products",
        catalogue / "items_shuffle.json",
        "--attributes",
        catalogue / "items_ins_v2.json",
    ]


def test_prepare_and_verify(folder: Path) -> None:
    human = ["--human", folder / "catalogue" / "items_human_ins.json"]
    shop = folder / "shop"
    said = run("prepare", *files(folder), *human, "--tagger", "builtin", "--out", shop)
    manifest = read_manifest(shop)
    assert f"60 products, content hash {manifest.content_hash}" in said
    assert "nouns of titles: built-in tagger 1" in said
    assert "split product, synthetic test:" in said
    assert "train wants 0 of these products" in said
    assert "human:" in said
    assert "every file is as the manifest says" in run("verify", shop)
    again = run("prepare", *files(folder), *human, "--out", shop, code=2)
    assert "holds a shop already" in again


def test_seeds_and_rows(folder: Path) -> None:
    options = ["--tagger", "builtin", "--num-products", 30]
    run("prepare", *files(folder), *options, "--out", folder / "a")
    run("prepare", *files(folder), *options, "--out", folder / "b", "--draw-seed", 5)
    run("prepare", *files(folder), *options, "--out", folder / "c", "--shuffle-seed", 5)
    first, *others = (read_manifest(folder / name) for name in "abc")
    assert first.num_products == 30
    assert first.goals["human"].num_goals == 0
    assert [(m.draw_seed, m.shuffle_seed) for m in others] == [(5, 233), (0, 5)]
    assert len({m.content_hash for m in (first, *others)}) == 3


def test_known_errors_are_one_line(folder: Path) -> None:
    assert "error:" in run("verify", folder, code=2)
    said = run("prepare", *files(folder), "--tagger", "x", "--out", folder / "d", code=2)
    assert "got 'x', expected one of auto, spacy, builtin" in said
    swapped = ["--products", files(folder)[3], "--attributes", files(folder)[1]]
    assert "expected '{'" in run("prepare", *swapped, "--out", folder / "e", code=2)
