"""Nothing that can run code when it is read: safetensors and JSON only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("sero_core", "backend", "worker", "dashboard", "migrations", "scripts", "benchmarks")
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"torch.load", "torch.save", "pd.read_pickle", "pandas.read_pickle", "yaml.load"}


def findings(source: str) -> Iterator[str]:
    """Imports and calls by which a file could be unpickled."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allows = any(
                word.arg == "allow_pickle" and not is_false(word.value) for word in node.keywords
            )
            if called in CALLS or allows:
                yield f"line {node.lineno}: {called}"
            continue
        else:
            continue
        yield from (
            f"line {node.lineno}: {name}" for name in names if name.split(".")[0] in MODULES
        )


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_no_file_of_ours_can_unpickle() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 100
    found = {
        str(path.relative_to(ROOT)): list(findings(path.read_text(encoding="utf-8")))
        for path in files
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    for source in (
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ):
        assert list(findings(source)), source
    assert not list(findings("import numpy as np\nnp.load('x', allow_pickle=False)"))


def test_celery_takes_json_only() -> None:
    from worker.app import app

    assert list(app.conf.accept_content) == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.result_accept_content in (None, ["json"])
