"""The warm start: seeded, stage by stage, and its policy learns the answer format's tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sero_core.commands import run_warmstart
from sero_core.config import load_config
from sero_core.envs import load_tasks
from sero_core.policy import DEMO_POLICY, Policy
from sero_core.types import SeroError, Task
from sero_core.warmstart import Stage, WarmstartConfig, collect_demonstrations, warmstart
from tests.support.train import TINY

CONFIG = load_config(TINY)
RECIPE = WarmstartConfig(
    stages=(
        Stage(num_games=8, noise=0.5, labels="oracle"),
        Stage(num_games=4, noise=0.5, labels="executed"),
    ),
    hidden_size=32,
    num_layers=1,
    vocab_size=400,
)


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    return load_tasks(CONFIG.env, "train")


def make(tasks: tuple[Task, ...], lines: list[str]) -> Policy:
    return warmstart([tasks[:8], tasks[8:]], CONFIG.prompt, RECIPE, lines.append)


def test_same_seed_same_policy_and_the_loss_falls(tasks: tuple[Task, ...]) -> None:
    lines: list[str] = []
    first, second = make(tasks, lines), make(tasks, [])
    for (name, a), (_, b) in zip(
        first.model.named_parameters(), second.model.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert first.tokenizer.get_vocab() == second.tokenizer.get_vocab()
    assert not first.model.training
    assert sum("answer loss" in line for line in lines) == 2, "one report a stage at least"


def test_oracle_labels_differ_from_executed_ones_only_by_noise(tasks: tuple[Task, ...]) -> None:
    clean = Stage(num_games=8, noise=0.0, labels="oracle")
    done = Stage(num_games=8, noise=0.0, labels="executed")
    assert collect_demonstrations(tasks, RECIPE, clean) == collect_demonstrations(
        tasks, RECIPE, done
    )
    noisy = [
        collect_demonstrations(tasks, RECIPE, Stage(num_games=8, noise=0.6, labels=labels))
        for labels in ("oracle", "executed")
    ]
    assert [row.observation for row in noisy[0]] == [row.observation for row in noisy[1]]
    assert [row.action for row in noisy[0]] != [row.action for row in noisy[1]]
    for row in noisy[1]:
        assert row.action in row.observation.admissible


def test_the_shipped_policy_says_how_it_was_made() -> None:
    text = (DEMO_POLICY / "warmstart.json").read_text()
    assert WarmstartConfig.model_validate_json(text) == WarmstartConfig()


def test_wrong_recipes_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(SeroError, match="num_layers"):
        run_warmstart(CONFIG, ("num_layers=0",), tmp_path / "out", say=print)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(SeroError, match="is not empty"):
        run_warmstart(CONFIG, (), tmp_path / "full", say=print)
