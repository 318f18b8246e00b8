"""T22: the sampler serves the weights that the trainer has, an adapter's too, also after a resume.

In real code an adapter never reached the engine, and a resumed engine served the base model: the
run looked like one that does not learn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sero_core.adapter import AdapterError
from sero_core.batch import Batch, build_batch
from sero_core.engines.transformers import TransformersRuntime
from sero_core.forward import score_rows
from sero_core.optimizer_state import load_optimizer, save_optimizer
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import (
    Policy,
    PolicyError,
    load_policy,
    open_policy,
    reference_policy,
    save_policy,
    weights_hash,
)
from sero_core.sections import (
    LoraConfig,
    OptimizerConfig,
    PolicyConfig,
    PolicyLoss,
    TransformersEngine,
)
from sero_core.update import update
from tests.support.rows import PASSES, sampled_rows
from tests.support.tiny import tiny_policy

OPTIM = OptimizerConfig(lr=0.05, weight_decay=0.0, minibatch_rows=4)
LORA = LoraConfig(rank=4, alpha=16)
KINDS = pytest.mark.parametrize("rank", [0, 4])


@pytest.fixture
def base(tmp_path: Path) -> PolicyConfig:
    save_policy(tiny_policy(), tmp_path / "base")
    return PolicyConfig(path=str(tmp_path / "base"))


def with_rank(base: PolicyConfig, rank: int) -> PolicyConfig:
    return base.model_copy(update={"lora": LoraConfig(rank=rank, alpha=16)})


def train(policy: Policy, optimizer: torch.optim.AdamW, batch: Batch, seed: int) -> None:
    update(
        policy,
        optimizer,
        batch,
        None,
        loss=PolicyLoss(kl_coef=0.0),
        optim=OPTIM,
        sero=None,
        reference=None,
        seed=seed,
    )


def sampled(policy: Policy) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Greedy answers of the engine with its log-probabilities."""
    prompts = [(5, 6, 7), (9, 4), (30, 31, 32, 33)]
    done = TransformersRuntime(TransformersEngine(), policy).generate(
        prompts, temperature=0.0, max_new_tokens=6, seeds=[0] * 3
    )
    ids = [torch.tensor(p + c.token_ids) for p, c in zip(prompts, done, strict=True)]
    trained = score_rows(policy, ids, [len(p) for p in prompts], [1.0] * 3, PASSES)
    for completion, logprobs in zip(done, trained, strict=True):
        assert completion.logprobs == pytest.approx(logprobs.tolist(), abs=1e-4), "engine, trainer"
    return [(c.token_ids, c.logprobs) for c in done]


@KINDS
def test_t22_the_sampler_sees_every_step(base: PolicyConfig, rank: int) -> None:
    policy = open_policy(with_rank(base, rank), None, 3)
    optimizer = make_optimizer(policy, OPTIM)
    before = sampled(policy)
    for seed in range(3):
        train(policy, optimizer, build_batch(sampled_rows(policy)), seed)
        after = sampled(policy)
        assert after != before
        before = after


@KINDS
def test_t22_a_resumed_run_serves_what_was_saved(
    base: PolicyConfig, rank: int, tmp_path: Path
) -> None:
    """N + save + load + N updates equal 2N bit by bit, and the sampler starts where it was."""
    config = with_rank(base, rank)
    straight = open_policy(config, None, 3)
    optimizer = make_optimizer(straight, OPTIM)
    first, second = (build_batch(sampled_rows(tiny_policy(), seed=seed)) for seed in (0, 1))
    train(straight, optimizer, first, 0)
    save_policy(straight, tmp_path / "saved")
    save_optimizer(optimizer, tmp_path / "saved" / "optimizer")
    resumed = open_policy(config, tmp_path / "saved", 3)
    other = make_optimizer(resumed, OPTIM)
    load_optimizer(other, tmp_path / "saved" / "optimizer")
    assert sampled(resumed) == sampled(straight)
    for policy, state in ((straight, optimizer), (resumed, other)):
        train(policy, state, second, 1)
    assert sampled(resumed) == sampled(straight)
    for (name, left), (_, right) in zip(straight.trained, resumed.trained, strict=True):
        assert torch.equal(left, right), name


def test_t22_only_the_adapter_is_trained_and_saved(base: PolicyConfig, tmp_path: Path) -> None:
    policy = open_policy(with_rank(base, 4), None, 3)
    frozen = {n: p.clone() for n, p in policy.model.named_parameters() if not p.requires_grad}
    assert {n.rpartition(".lora_")[2].partition(".")[0] for n, _ in policy.trained} == {"A", "B"}
    fresh = sampled(policy)
    assert fresh == sampled(load_policy(base.path)), "B = 0: the base model itself"
    train(policy, make_optimizer(policy, OPTIM), build_batch(sampled_rows(policy)), 0)
    for name, value in frozen.items():
        assert torch.equal(policy.model.get_parameter(name), value), name
    save_policy(policy, tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").glob("*.safetensors")}
    assert names == {"adapter_model.safetensors"}
    first = weights_hash(tmp_path / "saved")
    train(policy, make_optimizer(policy, OPTIM), build_batch(sampled_rows(policy)), 1)
    save_policy(policy, tmp_path / "saved")
    assert weights_hash(tmp_path / "saved") != first
    assert sampled(load_policy(str(tmp_path / "saved"))) == sampled(policy)


def test_t22_the_reference_is_the_base_and_stays_it(base: PolicyConfig) -> None:
    """No second model: the adapter is off for the reference's passes, and on again after them."""
    config = with_rank(base, 4)
    policy = open_policy(config, None, 3)
    reference = reference_policy(policy, config)
    assert reference.model is policy.model
    ids = [torch.tensor([5, 6, 7, 8, 9])]
    initial = score_rows(policy, ids, [2], [1.0], PASSES)[0]
    train(policy, make_optimizer(policy, OPTIM), build_batch(sampled_rows(policy)), 0)
    moved = score_rows(policy, ids, [2], [1.0], PASSES)[0]
    assert not torch.allclose(moved, initial, atol=1e-2)
    assert torch.equal(score_rows(reference, ids, [2], [1.0], PASSES)[0], initial)
    assert torch.equal(score_rows(policy, ids, [2], [1.0], PASSES)[0], moved)


def test_t22_an_adapter_on_another_base_is_refused(base: PolicyConfig, tmp_path: Path) -> None:
    policy = open_policy(with_rank(base, 4), None, 3)
    save_policy(policy, tmp_path / "saved")
    save_policy(tiny_policy(seed=9), Path(base.path))
    with pytest.raises(AdapterError, match=r"the base model's weights are .*, expected "):
        load_policy(str(tmp_path / "saved"))
    (tmp_path / "saved" / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(AdapterError, match=r"expected adapter_model\.safetensors"):
        load_policy(str(tmp_path / "saved"))


def test_t22_an_adapter_needs_the_config_that_made_it(base: PolicyConfig, tmp_path: Path) -> None:
    policy = open_policy(with_rank(base, 4), None, 3)
    save_policy(policy, tmp_path / "saved")
    with pytest.raises(PolicyError, match=r"holds an adapter, but policy\.lora\.rank is 0"):
        open_policy(base, tmp_path / "saved", 3)
    wrong = LORA.model_copy(update={"target_modules": "nonsense"})
    with pytest.raises(AdapterError, match="nonsense"):
        open_policy(base.model_copy(update={"lora": wrong}), None, 3)


def test_t22_a_new_adapter_is_drawn_from_the_seed(base: PolicyConfig) -> None:
    config = with_rank(base, 4)
    one, same, other = (open_policy(config, None, seed) for seed in (3, 3, 4))
    weights = [torch.cat([p.flatten() for _, p in policy.trained]) for policy in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert replace(one, is_base=True).adapter is one.adapter
