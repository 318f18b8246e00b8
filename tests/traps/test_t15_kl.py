"""T15: what each KL estimator estimates, what its gradient is, and that its coefficient acts.

k3 in the loss is widely used and has the gradient of the reverse KL; k1 in the loss is pure noise;
signs and clamps have been wrong.
"""

from __future__ import annotations

import math

import pytest
import torch

from sero_core.batch import build_batch
from sero_core.losses.kl import kl_estimate
from sero_core.policy import clone_policy
from sero_core.sections import KLEstimator, PolicyLoss
from tests.support.rows import assert_equal, policy_gradient, run_update, sampled_rows, weights
from tests.support.tiny import tiny_policy

NUM_SAMPLES = 200_000


def distributions() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a policy and log-probabilities of a reference over five tokens."""
    generator = torch.Generator().manual_seed(0)
    logits_V = 0.7 * torch.randn(5, generator=generator, dtype=torch.float64)
    ref_V = torch.log_softmax(0.7 * torch.randn(5, generator=generator, dtype=torch.float64), dim=0)
    return logits_V.requires_grad_(), ref_V


def exact_kl(logits_V: torch.Tensor, ref_V: torch.Tensor) -> torch.Tensor:
    logprobs_V = torch.log_softmax(logits_V, dim=0)
    return (logprobs_V.exp() * (logprobs_V - ref_V)).sum()


def expected_gradient(estimator: KLEstimator) -> torch.Tensor:
    """E over the policy's own tokens of d estimate / d logits: what a loss term does on average."""
    logits_V, ref_V = distributions()
    logprobs_V = torch.log_softmax(logits_V, dim=0)
    estimate_V = kl_estimate(logprobs_V, ref_V, estimator)
    (gradient_V,) = torch.autograd.grad((logprobs_V.detach().exp() * estimate_V).sum(), logits_V)
    return gradient_V


def test_t15_means_of_k1_and_k3_are_the_kl() -> None:
    """200,000 samples, three standard errors."""
    logits_V, ref_V = distributions()
    logprobs_V = torch.log_softmax(logits_V.detach(), dim=0)
    generator = torch.Generator().manual_seed(1)
    token_N = torch.multinomial(logprobs_V.exp(), NUM_SAMPLES, True, generator=generator)
    exact = float(exact_kl(logits_V.detach(), ref_V))
    assert exact > 0.1
    deviations: dict[str, float] = {}
    for estimator in ("k1", "k3", "k2"):
        each_N = kl_estimate(logprobs_V[token_N], ref_V[token_N], estimator)
        error = float(each_N.std()) / math.sqrt(NUM_SAMPLES)
        deviations[estimator] = abs(float(each_N.mean()) - exact) / error
    assert deviations["k1"] < 3
    assert deviations["k3"] < 3
    assert deviations["k2"] > 3, "k2 is biased"


@pytest.mark.parametrize("estimator", ["k2", "k1+", "k3+"])
def test_t15_the_gradient_of_k2_is_that_of_the_kl(estimator: KLEstimator) -> None:
    logits_V, ref_V = distributions()
    (want_V,) = torch.autograd.grad(exact_kl(logits_V, ref_V), logits_V)
    assert float(want_V.abs().max()) > 0.05
    assert torch.allclose(expected_gradient(estimator), want_V, atol=1e-12)


def test_t15_the_gradient_of_k3_is_that_of_the_reverse_kl() -> None:
    logits_V, ref_V = distributions()
    reverse = (ref_V.exp() * (ref_V - torch.log_softmax(logits_V, dim=0))).sum()
    (reverse_V,) = torch.autograd.grad(reverse, logits_V)
    assert torch.allclose(expected_gradient("k3"), reverse_V, atol=1e-12)
    (forward_V,) = torch.autograd.grad(exact_kl(logits_V, ref_V), logits_V)
    assert float((forward_V - reverse_V).abs().max()) > 0.01


def test_t15_the_gradient_of_k1_is_noise_of_mean_zero() -> None:
    assert float(expected_gradient("k1").abs().max()) < 1e-12


def test_t15_signs_and_clamps() -> None:
    """d = log ref - log policy: k1 is positive where the policy is surer than the reference."""
    logprobs_N = torch.tensor([-1.0, -3.0, -60.0], dtype=torch.float64, requires_grad=True)
    ref_N = torch.tensor([-2.0, -1.0, -1.0], dtype=torch.float64)
    assert kl_estimate(logprobs_N, ref_N, "k1").tolist() == [1.0, -2.0, -59.0]
    k3_N = kl_estimate(logprobs_N, ref_N, "k3")
    assert k3_N.tolist() == pytest.approx([math.exp(-1), math.exp(2) - 3, 10.0])
    (gradient_N,) = torch.autograd.grad(k3_N.sum(), logprobs_N)
    assert gradient_N.tolist() == pytest.approx([1 - math.exp(-1), 1 - math.exp(2), 0.0])
    free_N = kl_estimate(logprobs_N, ref_N, "k3", max_gap=None, max_value=None)
    assert float(free_N.detach()[2]) == pytest.approx(math.exp(59) - 60)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs", "k1+", "k3+"])
def test_t15_the_coefficient_acts_and_zero_is_off(estimator: KLEstimator) -> None:
    reference = tiny_policy(seed=1)
    batch = build_batch(sampled_rows(tiny_policy()))

    def trained(coefficient: float) -> dict[str, torch.Tensor]:
        policy = tiny_policy()
        loss = PolicyLoss(kl_coef=coefficient, kl_estimator=estimator)
        run_update(policy, batch, loss=loss, reference=reference)
        return weights(policy)

    plain, with_zero, with_kl = trained(0.0), trained(0.0), trained(0.1)
    assert_equal(plain, with_zero)
    assert any(not torch.equal(plain[name], with_kl[name]) for name in plain)


def test_t15_k3_pulls_to_the_reference() -> None:
    """Steps on the KL alone bring the policy's log-probabilities nearer to the reference's."""
    policy, reference = tiny_policy(scale=8.0), tiny_policy(seed=1, scale=8.0)
    rows = sampled_rows(policy, advantages=(0.0,))
    loss = PolicyLoss(kl_coef=1.0)
    values = [
        run_update(policy, build_batch(rows), loss=loss, reference=reference)["train/kl"]
        for _ in range(4)
    ]
    assert values[3] < 0.7 * values[0]


def test_t15_the_kl_to_itself_is_zero() -> None:
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    loss = PolicyLoss(kl_coef=0.05)
    with_kl = policy_gradient(policy, batch, loss, reference=clone_policy(policy))
    plain = policy_gradient(policy, batch, PolicyLoss(kl_coef=0.0))
    for name, value in plain.items():
        assert torch.allclose(value, with_kl[name], atol=1e-5), name
