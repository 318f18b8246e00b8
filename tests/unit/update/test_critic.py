"""The critic: what a value is read from, its loss by hand, and that cutting a batch changes
nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sero_core.credit.base import Values
from sero_core.credit.ppo import PPO, CriticConfig
from sero_core.critic import Critic, make_critic, value_loss
from sero_core.policy import save_policy
from sero_core.sections import LoraConfig, OptimizerConfig, PolicyConfig
from sero_core.types import Completion, Group, SeroError
from tests.support.credit import make_episode
from tests.support.episodes import TASK
from tests.support.tiny import VOCAB, tiny_policy

CONFIG = CriticConfig(lr=0.01, weight_decay=0.0, value_clip=100.0, minibatch_rows=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    save_policy(tiny_policy(scale=4.0), path)
    return path


def critic_of(
    folder: Path, level: str, *, config: CriticConfig = CONFIG, **optim: object
) -> Critic:
    settings = OptimizerConfig.model_validate(optim)
    policy = PolicyConfig(path=str(folder))
    return make_critic(config, "steps" if level == "steps" else "tokens", policy, settings, 0)


def with_a_head(critic: Critic) -> Critic:
    """The value head is zeros at first; give it numbers."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in critic.model.head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return critic


def played() -> list[Group]:
    """Two groups with answers of 1 to 4 tokens and prompts of 2 to 6."""
    rng = np.random.default_rng(0)
    groups: list[Group] = []
    for number in range(2):
        episodes = []
        for index in range(2):
            episode = make_episode([0.0] * (2 + index) + [10.0 * number], index=index)
            steps = []
            for step in episode.steps:
                ids = [int(i) for i in rng.integers(3, VOCAB, size=int(rng.integers(1, 5)))]
                prompt = tuple(int(i) for i in rng.integers(3, VOCAB, size=int(rng.integers(2, 7))))
                done = Completion(tuple(ids), tuple([-1.0] * len(ids)), "", False)
                steps.append(replace(step, prompt_ids=prompt, completion=done))
            episodes.append(replace(episode, steps=tuple(steps)))
        groups.append(Group(TASK, tuple(episodes)))
    return groups


def rows_of(values: Values) -> list[list[float]]:
    return [np.atleast_1d(row).tolist() for group in values for episode in group for row in episode]


def test_value_loss_by_hand() -> None:
    part = value_loss(
        torch.tensor([3.0, 1.2, -1.0]),
        torch.tensor([1.0, 1.0, 1.0]),
        torch.tensor([4.0, 1.0, 1.0]),
        value_clip=0.5,
    )
    plain, bounded = [1.0, 0.04, 4.0], [2.5**2, 0.04, 0.25]
    want = sum(0.5 * max(p, b) for p, b in zip(plain, bounded, strict=True))
    assert float(part.sum) == pytest.approx(want)
    assert (part.count, part.metrics["clipped"]) == (3, 1)


def test_a_clipped_value_has_no_gradient_away_from_where_it_was() -> None:
    values_N = torch.tensor([3.0, 1.2], requires_grad=True)
    value_loss(values_N, torch.ones(2), torch.tensor([4.0, 1.0]), value_clip=0.5).sum.backward()
    assert values_N.grad is not None
    assert values_N.grad.tolist() == pytest.approx([0.0, 0.2])


def test_a_new_critic_values_everything_at_zero(folder: Path) -> None:
    for level in ("tokens", "steps"):
        assert {v for row in rows_of(critic_of(folder, level).predict(played())) for v in row} == {
            0
        }


def test_a_value_is_read_before_its_token(folder: Path) -> None:
    critic = with_a_head(critic_of(folder, "tokens"))
    steps = [s for g in played() for e in g.episodes for s in e.steps]
    for step, row in zip(steps, rows_of(critic.predict(played())), strict=True):
        for position in range(len(step.completion.token_ids)):
            seen = torch.tensor([step.prompt_ids + step.completion.token_ids[:position]])
            with torch.no_grad():
                hidden = critic.model.body(input_ids=seen).last_hidden_state[0, -1]
                want = float(critic.model.head(hidden))
            assert row[position] == pytest.approx(want, abs=1e-4)


def test_a_steps_value_is_the_one_before_its_answer(folder: Path) -> None:
    by_token = rows_of(with_a_head(critic_of(folder, "tokens")).predict(played()))
    by_step = rows_of(with_a_head(critic_of(folder, "steps")).predict(played()))
    assert [row[0] for row in by_step] == pytest.approx([row[0] for row in by_token], abs=1e-5)
    assert all(len(row) == 1 for row in by_step)


@pytest.mark.parametrize("level", ["tokens", "steps"])
def test_how_rows_are_cut_into_passes_changes_nothing(folder: Path, level: str) -> None:
    groups = played()
    results = []
    for optim in ({"microbatch_tokens": 64}, {"microbatch_tokens": 9999}, {"layout": "packed"}):
        critic = with_a_head(critic_of(folder, level, **optim))
        values = critic.predict(groups)
        credits = PPO(level="steps" if level == "steps" else "tokens")(groups, values)
        assert credits.returns is not None
        metrics = critic.update(groups, values, credits.returns, seed=5)
        weights = torch.cat([p.detach().flatten() for _, p in critic.model.trained])
        results.append((values, metrics, weights))
    for values, metrics, weights in results[1:]:
        for mine, theirs in zip(rows_of(values), rows_of(results[0][0]), strict=True):
            assert mine == pytest.approx(theirs, abs=1e-4)
        assert metrics == pytest.approx(results[0][1], rel=1e-3, abs=1e-4)
        assert torch.allclose(weights, results[0][2], atol=2e-3)


def test_updates_bring_values_to_their_returns(folder: Path) -> None:
    groups = played()
    critic = critic_of(folder, "steps", config=CONFIG.model_copy(update={"lr": 0.03}))
    seen: list[dict[str, float]] = []
    for seed in range(25):
        values = critic.predict(groups)
        returns = PPO(level="steps")(groups, values).returns
        assert returns is not None
        seen.append(critic.update(groups, values, returns, seed))
    assert seen[0]["critic/explained_variance"] == 0.0
    assert seen[-1]["critic/explained_variance"] > 0.9
    assert seen[-1]["critic/loss"] < 0.05 * seen[0]["critic/loss"]


def test_value_clip_bounds_what_one_iteration_asks_for(folder: Path) -> None:
    """With a tiny clip range the loss stops pulling after the first steps."""
    groups = played()
    moved = []
    for value_clip in (0.01, 100.0):
        config = CONFIG.model_copy(update={"value_clip": value_clip, "lr": 0.05})
        critic = critic_of(folder, "steps", config=config)
        values = critic.predict(groups)
        returns = [[np.full(len(part), 10.0) for part in group] for group in values]
        metrics = critic.update(groups, values, returns, seed=0)
        moved.append(metrics["critic/clip_fraction"])
    assert moved[0] > 0.2
    assert moved[1] == 0


def test_save_and_load(folder: Path, tmp_path: Path) -> None:
    one, other = with_a_head(critic_of(folder, "tokens")), critic_of(folder, "tokens")
    one.save(tmp_path / "critic")
    other.load(tmp_path / "critic")
    assert rows_of(one.predict(played())) == rows_of(other.predict(played()))
    with pytest.raises(SeroError, match=r"expected critic\.safetensors"):
        other.load(tmp_path / "nothing")


def test_with_an_adapter_only_adapter_and_head_are_trained(folder: Path, tmp_path: Path) -> None:
    policy = PolicyConfig(path=str(folder), lora=LoraConfig(rank=2))
    critic = make_critic(CONFIG, "steps", policy, OptimizerConfig(), 0)
    names = [name for name, _ in critic.model.trained]
    assert any("lora" in name for name in names)
    assert all("lora" in name or name.startswith("lm_head") for name in names)
    critic.save(tmp_path)
    with pytest.raises(SeroError, match="another model"):
        critic_of(folder, "steps").load(tmp_path)
