"""KL on the reward: each step pays for its own tokens, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from sero_core.forward import Passes
from sero_core.kl_reward import subtract_kl
from sero_core.sections import PolicyLoss
from tests.support.episodes import group_of
from tests.support.tiny import tiny_policy

PASSES = Passes(4096, is_packed=False, head_tokens=512)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_each_step_pays_for_its_tokens(estimator: str) -> None:
    reference = tiny_policy(seed=4)
    group = group_of([1.0, 0.0], [2, 1])
    loss = PolicyLoss(kl_coef=0.5, kl_estimator=estimator, kl_in="reward")  # pyright: ignore
    (charged,), metrics = subtract_kl([group], reference, loss, 0.7, PASSES)
    total = tokens = 0.0
    for before, after in zip(group.episodes, charged.episodes, strict=True):
        assert after.is_won == before.is_won
        for old, new in zip(before.steps, after.steps, strict=True):
            ids = torch.tensor([old.prompt_ids + old.completion.token_ids])
            with torch.no_grad():
                logits_LV = reference.model(input_ids=ids).logits[0, :-1] / 0.7
            ref_L = torch.log_softmax(logits_LV, dim=-1).gather(1, ids[0, 1:, None])[:, 0]
            ref_L = ref_L[len(old.prompt_ids) - 1 :]
            gap_L = torch.tensor(old.completion.logprobs) - ref_L
            value_L = {
                "k1": gap_L,
                "k2": gap_L.square() / 2,
                "k3": ((-gap_L).exp() + gap_L - 1).clamp(max=10.0),
            }[estimator]
            total, tokens = total + float(value_L.sum()), tokens + len(value_L)
            assert old.reward - new.reward == pytest.approx(0.5 * float(value_L.sum()), abs=1e-4)
            assert new.completion == old.completion
    assert metrics["train/kl"] == pytest.approx(total / tokens, abs=1e-4)


def test_no_episode_is_no_number() -> None:
    group = group_of([], [])
    loss = PolicyLoss(kl_coef=0.5, kl_in="reward")
    assert subtract_kl([group], tiny_policy(), loss, 1.0, PASSES) == ([group], {})
