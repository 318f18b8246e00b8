"""A prepared shop: the same answers as in memory, resumed after a kill, checked by its hash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.envs.webshop.catalogue import generate_products
from sero_core.envs.webshop.chunks import build_chunks
from sero_core.envs.webshop.goals import GOAL_KINDS
from sero_core.envs.webshop.manifest import Manifest, read_manifest, verify
from sero_core.envs.webshop.nouns import choose_nouns
from sero_core.envs.webshop.prepare import Sources, prepare
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.splits import SPLIT_NAMES, SPLIT_RULES
from tests.support.webshop import golden_lines, golden_shop, golden_sources, quiet


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    prepare(golden_sources(), folder, quiet, rows_per_chunk=100)
    return folder


def test_answers_as_in_memory(prepared: Path) -> None:
    memory, disk = golden_shop(), Shop.open(prepared)
    places = range(memory.num_products)
    assert disk.num_products == memory.num_products
    assert [disk.product(i) for i in places] == [memory.product(i) for i in places]
    assert [disk.price(i) for i in places] == [memory.price(i) for i in places]
    assert [disk.title_nouns(i) for i in places] == [memory.title_nouns(i) for i in places]
    assert [disk.index_of(memory.product(i).asin) for i in places] == list(places)
    for kind in GOAL_KINDS:
        plain = [replace(g, is_solvable=None, is_solvable_fixed=None) for g in disk.goals(kind)]
        assert plain == list(memory.goals(kind))
        for rule in SPLIT_RULES:
            for part in SPLIT_NAMES:
                assert disk.split(rule, part, kind).tolist() == (
                    memory.split(rule, part, kind).tolist()
                )
    for row in golden_lines("search.jsonl.gz"):
        assert disk.search(row["query"]) == memory.search(row["query"])


def test_unknown_asin(prepared: Path) -> None:
    with pytest.raises(KeyError):
        Shop.open(prepared).index_of("B000000000")


def test_solvable_flags_are_counted(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    goals = Shop.open(prepared).goals("synthetic")
    assert manifest.goals["synthetic"].num_goals == len(goals) == 678
    assert manifest.goals["synthetic"].solvable == {
        "original": sum(bool(goal.is_solvable) for goal in goals),
        "fixed": sum(bool(goal.is_solvable_fixed) for goal in goals),
    }
    assert 0 < manifest.goals["synthetic"].solvable["original"] < 678


def test_same_bytes_whatever_the_chunks(prepared: Path, tmp_path: Path) -> None:
    prepare(golden_sources(), tmp_path, quiet, rows_per_chunk=60)
    manifests = [
        json.loads((folder / "manifest.json").read_text()) for folder in (prepared, tmp_path)
    ]
    assert manifests[0] == manifests[1]


class Killed(Exception):
    pass


def test_goes_on_after_an_interruption(prepared: Path, tmp_path: Path) -> None:
    sources = golden_sources()
    calls: list[int] = []

    def tag(titles: Sequence[str]) -> list[list[str]]:
        calls.append(len(titles))
        if len(calls) == 2:
            raise Killed
        return sources.tag(titles)

    with pytest.raises(Killed):
        prepare(replace(sources, tag=tag), tmp_path, quiet, rows_per_chunk=100)
    with pytest.raises(CatalogueError, match="goes on where it stopped"):
        Shop.open(tmp_path)
    manifest = prepare(replace(sources, tag=tag), tmp_path, quiet, rows_per_chunk=100)
    assert manifest == read_manifest(prepared)
    first, interrupted, again, last = calls
    assert again == interrupted, "the finished chunk was made again"
    assert first + again + last == 248


@pytest.mark.slow
def test_goes_on_after_kill_9(prepared: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from sero_core.envs.webshop import prepare\n"
        "from tests.support.webshop import golden_sources, quiet\n"
        "def die(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(prepare, sys.argv[1], die)\n"
        "prepare.prepare(golden_sources(), Path(sys.argv[2]), quiet, rows_per_chunk=100)\n"
    )
    for step in ("write_index", "write_goals", "winning_choice", "write_manifest"):
        killed = subprocess.run(
            [sys.executable, "-c", program, step, str(tmp_path)], env=dict(os.environ), check=False
        )
        assert killed.returncode == -signal.SIGKILL
        with pytest.raises(CatalogueError, match="holds no manifest"):
            Shop.open(tmp_path)
    assert prepare(golden_sources(), tmp_path, quiet, rows_per_chunk=100) == verify(prepared)
    assert not (tmp_path / ".work").exists()


def test_other_sources_start_anew(tmp_path: Path, prepared: Path) -> None:
    fewer = replace(golden_sources(), num_rows=50)
    work = tmp_path / ".work"
    work.mkdir()
    (work / "sources.json").write_text("[]")
    (work / "done-chunks").write_text("")
    manifest = prepare(fewer, tmp_path, quiet)
    assert 40 < manifest.num_products <= 50
    assert manifest.content_hash != read_manifest(prepared).content_hash


def test_a_finished_shop_is_not_overwritten(prepared: Path) -> None:
    with pytest.raises(CatalogueError, match="holds a shop already"):
        prepare(golden_sources(), prepared, quiet)


def copied(prepared: Path, to: Path) -> Path:
    for path in prepared.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_other_data_than_expected(prepared: Path) -> None:
    with pytest.raises(CatalogueError, match="expected 00ff"):
        Shop.open(prepared, "00ff")


def test_a_file_of_another_size(prepared: Path, tmp_path: Path) -> None:
    shop = copied(prepared, tmp_path)
    (shop / "prices.npy").write_bytes(b"short")
    with pytest.raises(CatalogueError, match=r"prices\.npy: got 5 bytes, expected 2112 bytes"):
        Shop.open(shop)
    (shop / "prices.npy").unlink()
    with pytest.raises(CatalogueError, match="got no such file"):
        Shop.open(shop)


def test_a_changed_manifest(prepared: Path, tmp_path: Path) -> None:
    shop = copied(prepared, tmp_path)
    fields = json.loads((shop / "manifest.json").read_text())
    fields["files"]["prices.npy"]["sha256"] = "0" * 64
    (shop / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(CatalogueError, match="was changed"):
        Shop.open(shop)


def test_verify_reads_every_byte(prepared: Path, tmp_path: Path) -> None:
    shop = copied(prepared, tmp_path)
    assert isinstance(verify(shop), Manifest)
    raw = bytearray((shop / "documents.npy").read_bytes())
    raw[-1] ^= 1
    (shop / "documents.npy").write_bytes(raw)
    Shop.open(shop)
    with pytest.raises(CatalogueError, match=r"documents\.npy was changed: got SHA-256"):
        verify(shop)


def test_odd_texts_survive(tmp_path: Path) -> None:
    """Lone surrogates, line breaks, NUL, asins beyond ASCII; no human file."""
    rows = [product.row for product in generate_products(3, 1)]
    rows[0] |= {"name": "half \ud83d emoji\u2028\x00", "asin": "É𝐱"}
    rows[1] |= {"full_description": "a\nb\r\n\x85 zebra \udc00"}
    attributes = {"É𝐱": {"attributes": ["\ud800"], "instruction_attributes": ["\ud800"]}}
    attributes["É𝐱"] |= {"instruction": "find \ud83d"}
    (tmp_path / "p.json").write_text(json.dumps(rows))
    (tmp_path / "a.json").write_text(json.dumps(attributes))
    tag, name = choose_nouns(None, "builtin")
    sources = Sources(tmp_path / "p.json", tmp_path / "a.json", None, tag, name)
    prepare(sources, tmp_path / "shop", quiet)
    disk = Shop.open(tmp_path / "shop")
    nouns = {row["name"]: tag([str(row["name"])])[0] for row in rows}
    memory = Shop.from_raw(rows, attributes, {}, nouns)
    for place in range(3):
        assert disk.product(place) == memory.product(place)
        assert disk.title_nouns(place) == memory.title_nouns(place)
    assert disk.index_of("É𝐱") == 0
    assert disk.search("zebra") == (1,)
    assert disk.goals("synthetic")[0].instruction_text.startswith("find \ud83d")
    assert len(disk.goals("human")) == 0


def test_an_empty_catalogue(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="holds no product"):
        build_chunks([], {}, {}, lambda titles: [], tmp_path)


def test_two_processes_share_a_shop(prepared: Path) -> None:
    """Each finds the same; the files are mapped, not copied."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from sero_core.envs.webshop.shop import Shop\n"
        "shop = Shop.open(Path(sys.argv[1]), sys.argv[2])\n"
        "print(shop.search('slim fit shorts'), 'documents.npy' in open('/proc/self/maps').read())\n"
    )
    arguments = [sys.executable, "-c", program, str(prepared), read_manifest(prepared).content_hash]
    running = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    outputs = {process.communicate()[0] for process in running}
    assert outputs == {f"{golden_shop().search('slim fit shorts')} True\n"}
