"""Every trap has a test of its number and a mutation that fits the code (`make mutate`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
TRAPS = [*(f"T{n:02}" for n in range(1, 28)), *(f"S{n:02}" for n in range(1, 11))]


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "scripts" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["mutate"] = module
    spec.loader.exec_module(module)
    return module


def test_every_mutation_fits(mutate: ModuleType) -> None:
    problems = {m.what: mutate.problem(m) for m in mutate.load()}
    assert {what: why for what, why in problems.items() if why} == {}


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_has_a_test_and_a_mutation(mutate: ModuleType, trap: str) -> None:
    assert list((ROOT / "tests" / "traps").glob(f"test_{trap.lower()}_*.py")), "a test"
    assert [m for m in mutate.load() if m.trap == trap], "a mutation"
