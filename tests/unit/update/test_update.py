"""One update: denominators, masks, alignment, and the separation of policy and oracle rows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from sero_core.batch import (
    Batch,
    OracleBatch,
    OracleRow,
    PolicyRow,
    build_batch,
    build_oracle_batch,
)
from sero_core.config import SeroConfig
from sero_core.engines.transformers import TransformersRuntime
from sero_core.forward import Passes
from sero_core.losses.aggregate import denominator
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy, PolicyError, clone_policy
from sero_core.policy_gradient import accumulate_policy_gradient, loss_terms
from sero_core.prepare import prepare_batch
from sero_core.sections import OptimizerConfig, PolicyLoss, TransformersEngine
from sero_core.types import SeroError
from sero_core.update import update
from sero_core.update_oracle import accumulate_oracle_gradient
from tests.support.tiny import VOCAB, tiny_policy

PLAIN = PolicyLoss(kl_coef=0.0)
FULL = PolicyLoss(kl_coef=0.05, entropy_coef=0.01)
OPTIM = OptimizerConfig(lr=1e-2, minibatch_rows=16, microbatch_tokens=4096)
NUM_ROWS = 16


def rows_of(policy: Policy, temperature: float = 1.0, seed: int = 0) -> list[PolicyRow]:
    """Sampled rows with their own log-probabilities; a third of them have advantage 0."""
    rng = random.Random(seed)
    prompts = [
        tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 20))) for _ in range(NUM_ROWS)
    ]
    done = TransformersRuntime(TransformersEngine(), policy).generate(
        prompts, temperature=temperature, max_new_tokens=8, seeds=range(NUM_ROWS)
    )
    return [
        PolicyRow(prompt, c.token_ids, (0.0, 1.3, -0.7)[i % 3], c.logprobs, temperature)
        for i, (prompt, c) in enumerate(zip(prompts, done, strict=True))
    ]


def rescored(policy: Policy, rows: list[PolicyRow]) -> list[PolicyRow]:
    """The rows with the policy's own teacher-forced log-probabilities."""
    scores = TransformersRuntime(TransformersEngine(), policy).score(
        [row.prompt_ids for row in rows], [row.token_ids for row in rows]
    )
    return [replace(row, old_logprobs=s) for row, s in zip(rows, scores, strict=True)]


def oracle_rows_of(seed: int = 0, number: int = 12) -> list[OracleRow]:
    rng = random.Random(seed)
    rows: list[OracleRow] = []
    for _ in range(number):
        ids = tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(3, 9)))
        scored = (False, *(True for _ in ids[2:]), False)
        prompt = tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 20)))
        rows.append(OracleRow(prompt, ids, scored, rng.random()))
    return rows


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}


def policy_gradient(
    policy: Policy, batch: Batch, loss: PolicyLoss, tokens: int, reference: Policy | None = None
) -> dict[str, torch.Tensor]:
    """Of the whole batch as one minibatch, in micro-batches of `tokens`."""
    policy.model.zero_grad()
    passes = Passes(tokens, is_packed=False, head_tokens=512)
    batch, _ = prepare_batch(policy, reference, batch, loss, passes)
    count = denominator([int(mask.sum()) for mask in batch.masks], loss.aggregation)
    rows = range(len(batch))
    accumulate_policy_gradient(policy, batch, rows, count, loss, passes, loss_terms(loss))
    return gradients(policy)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.model.state_dict().items()}


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def assert_close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.allclose(value, right[name], rtol=1e-5, atol=1e-6), name


def run(
    policy: Policy,
    batch: Batch,
    oracle: OracleBatch | None = None,
    **changes: Any,  # noqa: ANN401
) -> dict[str, float]:
    arguments: dict[str, Any] = {
        "loss": PLAIN,
        "optim": OPTIM,
        "sero": SeroConfig(minibatch_rows=5),
        "reference": None,
        "seed": 3,
    }
    optimizer = changes.pop("optimizer", None) or make_optimizer(policy, OPTIM)
    return update(policy, optimizer, batch, oracle, **(arguments | changes))


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("microbatch_tokens", [64, 4096])
def test_first_ratio_is_one(temperature: float, microbatch_tokens: int) -> None:
    """T12: before any update trainer and sampler agree, at every temperature and batch split."""
    policy = tiny_policy()
    optim = OPTIM.model_copy(update={"microbatch_tokens": microbatch_tokens})
    metrics = run(policy, build_batch(rows_of(policy, temperature)), optim=optim)
    assert 0 <= metrics["numerics/ratio_first_max"] < 1e-5


def test_first_ratio_of_scored_logprobs_is_exact() -> None:
    """T12: with log-probabilities of `score` the ratio is 1 to 1e-6."""
    policy = tiny_policy()
    rows = rescored(policy, rows_of(policy))
    assert run(policy, build_batch(rows))["numerics/ratio_first_max"] < 1e-6


def test_exactly_the_answer_tokens_are_trained() -> None:
    """T3: the gradient is that of the answer's tokens, end token included, by the library's own
    forward pass; with the last prompt token added or the end token left out it is another one."""
    policy = tiny_policy()
    end = policy.stop_ids[0]
    sampled = rows_of(policy)[1]
    row = replace(
        sampled,
        prompt_ids=(*sampled.prompt_ids, end, 5),  # the end token in the prompt is no answer
        token_ids=(*sampled.token_ids[:-1], end),
        advantage=1.5,
    )
    row = rescored(policy, [row])[0]
    got = policy_gradient(policy, build_batch([row]), PLAIN, 4096)
    first, size = len(row.prompt_ids), len(row.token_ids)

    def by_hand(start: int, stop: int) -> dict[str, torch.Tensor]:
        policy.model.zero_grad()
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids).logits[0, :-1], dim=-1)
        chosen_L = logprobs_LV.gather(1, ids[0, 1:, None])[:, 0]
        (-1.5 * chosen_L[start - 1 : stop - 1].sum() / size).backward()
        return gradients(policy)

    assert_close(by_hand(first, first + size), got)
    for start, stop in ((first - 1, first + size), (first, first + size - 1)):
        other = by_hand(start, stop)
        assert any(float((other[name] - got[name]).abs().max()) > 1e-3 for name in got)


def test_masked_tokens_have_no_gradient_and_are_counted() -> None:
    policy = tiny_policy()
    rows = rows_of(policy)
    masked = [
        replace(row, mask=tuple(i % 2 == 0 for i in range(len(row.token_ids)))) for row in rows
    ]
    broken = [
        replace(
            row,
            old_logprobs=tuple(
                value if kept else -30.0
                for value, kept in zip(row.old_logprobs, row.mask or (), strict=True)
            ),
        )
        for row in masked
    ]
    left = policy_gradient(policy, build_batch(masked), PLAIN, 4096)
    assert_equal(left, policy_gradient(policy, build_batch(broken), PLAIN, 4096))
    metrics = run(policy, build_batch(masked))
    dropped = sum(len(row.token_ids) // 2 for row in rows)
    assert metrics["numerics/masked_tokens"] == dropped
    assert metrics["train/tokens"] == sum(len(row.token_ids) for row in rows) - dropped


def test_advantages_are_aligned_with_their_tokens() -> None:
    """T4: with a_t = t, d loss / d logit of the sampled token is -a_t (1 - p_t) / N."""
    policy = tiny_policy()
    row = max(rows_of(policy), key=lambda row: len(row.token_ids))
    size = len(row.token_ids)
    mask = tuple(i != 2 for i in range(size))
    batch = build_batch([replace(row, mask=mask)])
    batch = replace(batch, advantages=(torch.arange(1.0, size + 1),))
    seen: list[torch.Tensor] = []

    def keep(_module: object, _args: object, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    handle = policy.head.register_forward_hook(keep)
    count = size - 1
    passes = Passes(4096, is_packed=False, head_tokens=512)
    accumulate_policy_gradient(policy, batch, [0], count, PLAIN, passes, ("policy",))
    handle.remove()
    assert seen[0].grad is not None
    targets = torch.tensor(row.token_ids)
    got_N = seen[0].grad.gather(1, targets[:, None])[:, 0]
    probability_N = torch.tensor(row.old_logprobs).exp()
    kept_N = torch.tensor(mask).float()
    want_N = -torch.arange(1.0, size + 1) * kept_N * (1 - probability_N) / count
    assert torch.allclose(got_N, want_N, atol=1e-5)


@pytest.mark.parametrize("loss", [PLAIN, FULL])
def test_microbatches_do_not_change_the_gradient(loss: PolicyLoss) -> None:
    """T16: 1x16, about 4x4 and 16x1 rows, with a fully masked row among them."""
    policy = tiny_policy()
    rows = rows_of(policy)
    rows[5] = replace(rows[5], mask=(False,) * len(rows[5].token_ids))
    batch, reference = build_batch(rows), tiny_policy(seed=1)
    one = policy_gradient(policy, batch, loss, 10_000, reference)
    assert all(bool(value.isfinite().all()) for value in one.values())
    for tokens in (100, 1):
        assert_close(policy_gradient(policy, batch, loss, tokens, reference), one)


def test_rows_of_zero_advantage_count_but_need_no_forward_pass() -> None:
    """Skipping them equals computing them: same gradient, because the denominator is the same."""
    policy = tiny_policy()
    batch = build_batch(rows_of(policy))
    skipped = policy_gradient(policy, batch, PLAIN, 4096)
    tiny_entropy = PolicyLoss(kl_coef=0.0, entropy_coef=1e-30)
    assert_close(policy_gradient(policy, batch, tiny_entropy, 4096), skipped)
    only = [row for row in rows_of(policy) if row.advantage != 0]
    fewer = policy_gradient(policy, build_batch(only), PLAIN, 4096)
    tokens = sum(len(row.token_ids) for row in rows_of(policy))
    kept = sum(len(row.token_ids) for row in only)
    assert_close({name: value * (kept / tokens) for name, value in fewer.items()}, skipped)


def test_a_batch_without_signal_has_loss_zero() -> None:
    """T27: all tokens rejected, or all advantages 0: finite, counted, no error."""
    policy = tiny_policy()
    rows = [replace(row, mask=(False,) * len(row.token_ids)) for row in rows_of(policy)]
    before = weights(policy)
    metrics = run(policy, build_batch(rows))
    assert metrics["train/loss"] == 0.0
    assert metrics["train/tokens"] == 0.0
    assert metrics["numerics/masked_tokens"] > 0
    assert_equal(before, weights(policy))
    metrics = run(policy, build_batch([replace(row, advantage=0.0) for row in rows_of(policy)]))
    assert (metrics["train/loss"], metrics["train/grad_norm"]) == (0.0, 0.0)
    assert run(policy, build_batch([]))["train/tokens"] == 0.0


def test_oracle_rows_do_not_touch_the_policy_gradient() -> None:
    """S6: the policy loss has its own denominator; twice the oracle rows change nothing in it."""
    results: list[dict[str, float]] = []
    for number in (0, 6, 12):
        policy = tiny_policy()
        oracle = build_oracle_batch(oracle_rows_of(number=number))
        results.append(run(policy, build_batch(rows_of(policy)), oracle))
    for key, value in results[0].items():
        assert results[1][key] == value
        assert results[2][key] == value
    assert "sero/oracle_loss" not in results[0]


def test_coefficient_zero_is_the_base_method() -> None:
    """S5: with oracle_coef 0 weights, moments and policy metrics are bit-equal."""
    plain, silent = tiny_policy(), tiny_policy()
    sero = SeroConfig(oracle_coef=0.0)
    optimizers = [make_optimizer(plain, OPTIM), make_optimizer(silent, OPTIM)]
    oracle = build_oracle_batch(oracle_rows_of())
    batch = build_batch(rows_of(plain))
    for seed in (0, 1):
        left = run(plain, batch, optimizer=optimizers[0], seed=seed)
        right = run(silent, batch, oracle, optimizer=optimizers[1], seed=seed, sero=sero)
        assert {key: right[key] for key in left} == left
        assert right["sero/oracle_loss"] > 0
        assert right["sero/grad_norm"] == 0.0
    assert_equal(weights(plain), weights(silent))


@pytest.mark.parametrize("normalizer", ["sum_weights", "rows"])
def test_oracle_gradient_is_the_weighted_mean(normalizer: Any) -> None:  # noqa: ANN401
    """Section 1.8 by hand, for any split into microbatches; a row of weight 0 is not computed."""
    policy = tiny_policy()
    rows = [*oracle_rows_of(), replace(oracle_rows_of()[0], weight=0.0)]
    batch = build_oracle_batch(rows)
    assert batch is not None
    divisor = sum(row.weight for row in rows) if normalizer == "sum_weights" else len(rows)
    policy.model.zero_grad()
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids).logits[0], dim=-1)
        start = len(row.prompt_ids) - 1
        nll = [
            -logprobs_LV[start + i, token]
            for i, (token, kept) in enumerate(zip(row.token_ids, row.scored, strict=True))
            if kept
        ]
        total = total + row.weight * torch.stack(nll).mean()
    (0.3 * total / divisor).backward()
    expected = gradients(policy)
    for tokens in (10_000, 60, 1):
        policy.model.zero_grad()
        got = accumulate_oracle_gradient(
            policy, batch, range(len(rows)), normalizer, 0.3 / divisor, Passes(tokens, False, 512)
        )
        assert got == pytest.approx(float(total.detach()), rel=1e-5)
        assert_close(gradients(policy), expected)


def test_oracle_steps_learn_the_oracle() -> None:
    policy = tiny_policy()
    optimizer = make_optimizer(policy, OPTIM)
    oracle = build_oracle_batch(oracle_rows_of())
    values = [
        run(policy, build_batch([]), oracle, optimizer=optimizer, seed=i)["sero/oracle_loss"]
        for i in range(6)
    ]
    assert values[-1] < 0.7 * values[0]


def test_policy_gradient_raises_what_was_good() -> None:
    policy = tiny_policy()
    batch = build_batch(rows_of(policy))
    run(policy, batch, optim=OPTIM.model_copy(update={"lr": 1e-3}))
    rows = rows_of(tiny_policy())
    gain = sum(
        old.advantage * (sum(new.old_logprobs) - sum(old.old_logprobs))
        for old, new in zip(rows, rescored(policy, rows), strict=True)
    )
    assert gain > 0


def test_kl_starts_at_zero_and_is_only_there_with_a_coefficient() -> None:
    policy = tiny_policy()
    batch, reference = build_batch(rows_of(policy)), clone_policy(policy)
    optimizer = make_optimizer(policy, OPTIM)
    first = run(policy, batch, optimizer=optimizer, loss=FULL, reference=reference)
    second = run(policy, batch, optimizer=optimizer, loss=FULL, reference=reference)
    assert abs(first["train/kl"]) < 1e-9
    assert second["train/kl"] > 0.0
    assert "train/kl" not in run(policy, batch)


def test_the_same_seed_gives_the_same_weights() -> None:
    results: list[dict[str, torch.Tensor]] = []
    optim = OPTIM.model_copy(update={"minibatch_rows": 4})
    for seed in (3, 3, 4):
        policy = tiny_policy()
        oracle = build_oracle_batch(oracle_rows_of())
        run(policy, build_batch(rows_of(policy)), oracle, optim=optim, seed=seed)
        results.append(weights(policy))
    assert_equal(results[0], results[1])
    assert any(not torch.equal(results[0][name], results[2][name]) for name in results[0])


def test_what_cannot_be_trained_is_an_error() -> None:
    policy = tiny_policy()
    batch, oracle = build_batch(rows_of(policy)), build_oracle_batch(oracle_rows_of())
    with pytest.raises(SeroError, match="no reference policy"):
        run(policy, batch, loss=FULL)
    with pytest.raises(SeroError, match="no sero config"):
        run(policy, batch, oracle, sero=None)
    policy.model.train()
    with pytest.raises(PolicyError, match="eval mode"):
        run(policy, batch)
    policy.model.eval()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float("nan"))
    with pytest.raises(SeroError, match="gradient norm is nan"):
        run(policy, batch)
