"""Each estimator of the union trains two iterations of real episodes with the demo policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sero_core.checkpoint import TrainerState
from sero_core.config import load_config
from sero_core.credit import ESTIMATORS
from sero_core.setup import build_trainer
from sero_core.train import iterate

pytestmark = pytest.mark.slow
TINY = Path(__file__).parents[1] / "support" / "tiny.toml"
SMALL = (
    "num_iterations=9",
    "rollout.num_tasks=3",
    "rollout.group_size=3",
    "rollout.max_steps=5",
    "rollout.invalid_penalty=0.05",
    "evaluation.every=0",
)
NAMES = [str(member.model_fields["name"].default) for member in ESTIMATORS]


@pytest.mark.parametrize("name", NAMES)
def test_two_iterations(name: str) -> None:
    config = load_config(TINY, (*SMALL, f"estimator.name={name}", "rollout.max_rounds=2"))
    trainer = build_trainer(config)
    before = torch.cat([p.detach().flatten().clone() for _, p in trainer.policy.trained])
    state = TrainerState(0, config.group_hash(), config.seed, {})
    for _ in range(2):
        record, state = iterate(trainer, state)
        assert all(np.isfinite(value) for value in record.metrics.values())
        assert record.metrics["credit/nonfinite_episodes"] == 0
        assert 1 <= record.metrics["dynamic/rounds"] <= 2
        assert ("critic/loss" in record.metrics) is (name == "ppo")
    after = torch.cat([p.detach().flatten() for _, p in trainer.policy.trained])
    assert float((after - before).abs().max()) > 0
    trainer.close()


def test_warm_up_trains_the_critic_alone() -> None:
    overrides = ("estimator.name=ppo", "estimator.critic.warmup_iterations=1")
    config = load_config(TINY, (*SMALL, *overrides))
    trainer = build_trainer(config)
    assert trainer.critic is not None
    models = {"policy": trainer.policy, "critic": trainer.critic.model}

    def weights() -> dict[str, torch.Tensor]:
        return {
            name: torch.cat([p.detach().flatten().clone() for _, p in model.trained])
            for name, model in models.items()
        }

    start, state = weights(), TrainerState(0, config.group_hash(), config.seed, {})
    record, state = iterate(trainer, state)
    middle = weights()
    assert torch.equal(middle["policy"], start["policy"])
    assert not torch.equal(middle["critic"], start["critic"])
    assert "train/loss" not in record.metrics
    iterate(trainer, state)
    assert not torch.equal(weights()["policy"], start["policy"])
    trainer.close()
