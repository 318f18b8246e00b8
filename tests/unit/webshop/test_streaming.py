"""Large JSON files, element by element, with Python's grammar."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sero_core.envs.webshop import streaming
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.streaming import stream_array, stream_object


def written(folder: Path, text: str) -> Path:
    path = folder / "data.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=25)
@given(rows=st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), max_size=5))
def test_equals_json_load(rows: list[object], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    for indent in (None, 1):
        text = json.dumps(rows, ensure_ascii=False, indent=indent)
        assert list(stream_array(written(folder, text))) == rows


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_any_block_size(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BLOCK_BYTES", block)
    rows = [{"name": 'é"}{,]字🇫🇷', "n": 1.5}, [], {}, "text"]
    path = written(tmp_path, "\ufeff " + json.dumps(rows, ensure_ascii=False, indent=2) + "\n")
    assert list(stream_array(path)) == rows
    members = {"a": {"b": [1]}, "c": []}
    assert list(stream_object(written(tmp_path, json.dumps(members)))) == list(members.items())


def test_nan_is_read_as_json_load_reads_it(tmp_path: Path) -> None:
    (row,) = stream_array(written(tmp_path, '[{"average_rating": NaN}]'))
    assert isinstance(row, dict)
    assert math.isnan(row["average_rating"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected '\['"),
        ("{}", r"expected '\['"),
        ("[{}", "expected ','"),
        ("[{} {}]", "expected ','"),
        ("[{}, 3]", "element 1 must be an object"),
        ('[{"a": 1', "element 0 is no JSON"),
        ('[{"a" 1}]', "element 0 is no JSON"),
        ("[{}] x", "expected the end of the file"),
    ],
)
def test_errors_name_the_element(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=message):
        list(stream_array(written(tmp_path, text)))


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(CatalogueError, match="no UTF-8"):
        list(stream_array(path))


def test_a_missing_bracket_does_not_read_the_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 64)
    monkeypatch.setattr(streaming, "MAX_ELEMENT_BYTES", 256)
    with pytest.raises(CatalogueError, match="longer than 256 bytes"):
        list(stream_array(written(tmp_path, "[{" + '"a": [1], ' * 1000)))


def test_memory_stays_small_and_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(20_000):
            file.write(("," if number else "") + json.dumps({"n": number, "text": "x" * 500}))
        file.write("]")
    told: list[int] = []
    tracemalloc.start()
    assert sum(1 for _ in stream_array(path, told.append)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * streaming.BLOCK_BYTES < path.stat().st_size
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size
