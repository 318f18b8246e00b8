"""Every preset of `configs/paper` trains for two iterations, its method untouched, on a random
model of the same architecture scaled down.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sero_core.config import RunConfig, load_config
from sero_core.policy import load_policy, parameters_hash
from sero_core.setup import build_trainer
from sero_core.train import train
from sero_core.types import IterationRecord
from tests.support.presets import PRESETS, SHAPES, save_small_model, scaled_down

METHOD = ("protocol", "estimator", "loss", "sero")
"""Sections that are the method: scaling down leaves them as they are."""


class Kept:
    """A sink that keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[IterationRecord] = []

    def write(self, record: IterationRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for key in SHAPES:
        save_small_model(key, folder / key)
    return {key: folder / key for key in SHAPES}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_two_iterations(path: Path, models: dict[str, Path], tmp_path: Path) -> None:
    model = models[path.stem.split("_")[1]]
    config = load_config(path, scaled_down(path, model))
    assert method_of(config) == method_of(load_config(path))
    before = parameters_hash(load_policy(str(model)))
    trainer, kept = build_trainer(config), Kept()
    train(trainer, tmp_path, [kept], None, lambda record: None)
    trainer.close()

    assert [record.iteration for record in kept.records] == [0, 1, 2]
    assert all(record.evaluations for record in (kept.records[0], kept.records[2]))
    assert kept.records[0].evaluations[0].conditions.protocol == "paper 2"
    assert parameters_hash(trainer.policy) != before
    for record in kept.records:
        assert all(math.isfinite(value) for value in record.metrics.values()), record.metrics
    if config.sero is not None:
        check_branches(config, kept.records)


def method_of(config: RunConfig) -> dict[str, object]:
    data = config.model_dump()
    return {key: data[key] for key in METHOD}


def check_branches(config: RunConfig, records: list[IterationRecord]) -> None:
    """The arm's branches are what the arm says, and some of them are trained on."""
    assert config.sero is not None
    branches = [branch for record in records for branch in record.branches]
    assert any(branch.is_trained for branch in branches)
    steps = [step for branch in branches for step in branch.steps]
    if config.sero.horizon == 1:
        assert all(len(branch.steps) == 1 for branch in branches if branch.is_trained)
    else:
        assert max(step.depth for step in steps) > 1
        weights = {step.weight for step in steps if step.depth}
        assert (weights == {1.0}) is (config.sero.reachability.beta == 0)
    roots = {branch.root_index for branch in branches}
    if config.sero.root.rule == "start":
        assert roots == {0}
    else:
        assert len(roots) > 1
