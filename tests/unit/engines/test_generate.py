"""Generation equals the model run token by token without a cache; rows do not see each other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from sero_core.engines.sampling import seed_words, uniforms
from sero_core.engines.transformers import FORWARD_TOKENS, TransformersRuntime
from sero_core.policy import Policy, make_policy
from sero_core.sections import TransformersEngine
from sero_core.types import SeroError
from tests.support.tiny import EOS, VOCAB, tiny_policy
from tests.support.tiny_gpt2 import tiny_gpt2

MAX_NEW = 9


@pytest.fixture(scope="module")
def policy() -> Policy:
    return tiny_policy()


def engine(policy: Policy, batch_size: int = 64) -> TransformersRuntime:
    return TransformersRuntime(TransformersEngine(batch_size=batch_size), policy)


def prompts_of(number: int, seed: int = 0, shared: int = 0) -> list[tuple[int, ...]]:
    """Ragged random prompts of 2 to 22 tokens, the first `shared` of them equal in every prompt."""
    rng = random.Random(seed)
    start = tuple(rng.randrange(3, VOCAB) for _ in range(shared))
    return [
        start + tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 22)))
        for _ in range(number)
    ]


def by_hand(
    policy: Policy, prompt: tuple[int, ...], temperature: float, seed: int
) -> tuple[list[int], list[float]]:
    """One row, no cache, no padding: the whole sequence through the model for every token."""
    ids, logprobs = list(prompt), []
    words = seed_words([seed])
    for step in range(MAX_NEW):
        with torch.inference_mode():
            logits_V = policy.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
        logprobs_V = torch.log_softmax(logits_V / (temperature or 1.0), dim=-1).numpy()
        if temperature == 0:
            token = int(logprobs_V.argmax())
        else:
            level = np.cumsum(np.exp(logprobs_V))
            token = int(np.searchsorted(level, uniforms(words, step)[0] * level[-1], side="right"))
        ids.append(token)
        logprobs.append(float(logprobs_V[token]))
        if token in policy.stop_ids:
            break
    return ids[len(prompt) :], logprobs


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.7])
@pytest.mark.parametrize("shared", [0, 40])
def test_equals_the_model_run_token_by_token(
    policy: Policy, temperature: float, shared: int
) -> None:
    prompts = prompts_of(12, shared=shared)
    seeds = [100 + index for index in range(12)]
    got = engine(policy, 5).generate(
        prompts, temperature=temperature, max_new_tokens=MAX_NEW, seeds=seeds
    )
    for prompt, seed, completion in zip(prompts, seeds, got, strict=True):
        ids, logprobs = by_hand(policy, prompt, temperature, seed)
        assert list(completion.token_ids) == ids
        assert completion.logprobs == pytest.approx(logprobs, abs=1e-5)


def test_a_row_does_not_depend_on_the_others(policy: Policy) -> None:
    prompts = [*prompts_of(20), *prompts_of(10, seed=1, shared=30)]
    prompts[4] = prompts[9]
    seeds = list(range(len(prompts)))
    whole = sample(policy, prompts, seeds, 64)
    assert sample(policy, prompts, seeds, 7) == whole
    assert sample(policy, prompts, seeds, 1) == whole
    order = random.Random(3).sample(range(len(prompts)), len(prompts))
    shuffled = sample(policy, [prompts[i] for i in order], [seeds[i] for i in order], 8)
    assert shuffled == [whole[i] for i in order]
    assert whole[4] != whole[9], "equal prompts, different seeds"


def sample(
    policy: Policy, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int], batch_size: int
) -> list[tuple[int, ...]]:
    done = engine(policy, batch_size).generate(
        prompts, temperature=1.0, max_new_tokens=MAX_NEW, seeds=seeds
    )
    return [completion.token_ids for completion in done]


def test_greedy_logprobs_are_at_temperature_one(policy: Policy) -> None:
    prompts = prompts_of(6)
    runtime = engine(policy)
    done = runtime.generate(prompts, temperature=0.0, max_new_tokens=5, seeds=[0] * 6)
    scores = runtime.score(prompts, [c.token_ids for c in done])
    for completion, score in zip(done, scores, strict=True):
        assert completion.logprobs == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("make", [tiny_policy, tiny_gpt2])
def test_padding_and_positions(make: type[Policy]) -> None:
    """T18: logprobs of a row are the same with 0, 1 and 7 pads, for RoPE and learned positions."""
    policy = make()
    prompt = prompts_of(1)[0]
    prompts = [prompt, (5, *prompt), (5, 6, 7, 8, 9, 10, 11, *prompt)]
    runtime = engine(policy)
    alone = runtime.generate([prompt], temperature=1.0, max_new_tokens=MAX_NEW, seeds=[7])[0]
    for others in ([], prompts[1:2], prompts[2:]):
        batch = [prompt, *others]
        got = runtime.generate(
            batch, temperature=1.0, max_new_tokens=MAX_NEW, seeds=[7] * len(batch)
        )[0]
        assert got.token_ids == alone.token_ids
        assert got.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        scores = runtime.score(batch, [got.token_ids] * len(batch))[0]
        assert scores == pytest.approx(alone.logprobs, abs=1e-5)


def test_prompts_are_read_in_several_passes(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass or a pass per prompt: the same tokens, the same log-probabilities."""
    prompts = [*prompts_of(9), prompts_of(9)[3]]
    arguments = {"temperature": 1.0, "max_new_tokens": MAX_NEW, "seeds": range(10)}
    whole = engine(policy).generate(prompts, **arguments)
    for budget in (1, 40):
        monkeypatch.setitem(FORWARD_TOKENS, "cpu", budget)
        parts = engine(policy).generate(prompts, **arguments)
        for left, right in zip(whole, parts, strict=True):
            assert left.token_ids == right.token_ids
            assert left.logprobs == pytest.approx(right.logprobs, abs=1e-5)


def test_frequencies_follow_the_softmax(policy: Policy) -> None:
    """Chi-square of 4000 first tokens against the exact distribution; rare tokens as one class."""
    prompt, number = prompts_of(1, seed=5)[0], 4000
    done = engine(policy, 500).generate(
        [prompt] * number, temperature=1.3, max_new_tokens=1, seeds=range(number)
    )
    with torch.inference_mode():
        logits_V = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    expected = number * torch.softmax(logits_V / 1.3, dim=-1).numpy()
    counts = np.bincount([c.token_ids[0] for c in done], minlength=VOCAB)
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum() + 1e-9)
    chi2 = float((((observed - wanted) ** 2) / wanted).sum())
    degrees = int(common.sum())
    assert degrees > 20
    assert chi2 < degrees + 4 * np.sqrt(2 * degrees)


def test_updated_weights_are_used_at_once() -> None:
    """T22: the sampler never serves weights from before an update."""
    policy = tiny_policy()
    prompts = prompts_of(8, shared=20)
    runtime = engine(policy)
    before = runtime.generate(prompts, temperature=0.0, max_new_tokens=5, seeds=[0] * 8)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.3 * torch.sin(torch.arange(parameter.numel())).view_as(parameter))
    after = runtime.generate(prompts, temperature=0.0, max_new_tokens=5, seeds=[0] * 8)
    assert [c.token_ids for c in after] != [c.token_ids for c in before]
    for prompt, completion in zip(prompts, after, strict=True):
        expected = by_hand(policy, prompt, 0.0, 0)[1]
        assert completion.logprobs[0] == pytest.approx(expected[0], abs=1e-5)


def test_scoring_keeps_order_and_skips_empty_completions(policy: Policy) -> None:
    runtime = engine(policy)
    prompts = prompts_of(5)
    completions = [(5,), (), (6, 7, 8), (9, EOS), (10,)]
    scores = runtime.score(prompts, completions)
    assert [len(score) for score in scores] == [1, 0, 3, 2, 1]
    for prompt, completion, score in zip(prompts, completions, scores, strict=True):
        if completion:
            alone = runtime.score([prompt], [completion])[0]
            assert score == pytest.approx(alone, abs=1e-5)


def test_wrong_arguments_are_named(policy: Policy) -> None:
    runtime = engine(policy)
    with pytest.raises(SeroError, match="2 seeds for 1 prompts"):
        runtime.generate([(3,)], temperature=1.0, max_new_tokens=1, seeds=[1, 2])
    with pytest.raises(SeroError, match="not empty"):
        runtime.generate([()], temperature=1.0, max_new_tokens=1, seeds=[1])
    with pytest.raises(SeroError, match="temperature"):
        runtime.score([(3,)], [(4,)], temperature=0.0)
    assert runtime.generate([], temperature=1.0, max_new_tokens=1, seeds=[]) == []
    assert runtime.score([], []) == []


def test_bfloat16_runs_the_forward_pass_in_bfloat16_only() -> None:
    """T19: parameters and log-probabilities stay float32; sampler and scorer stay close."""
    exact = tiny_policy(scale=4.0)
    policy = make_policy(exact.model, exact.tokenizer, torch.bfloat16)
    prompts = prompts_of(8)
    runtime = engine(policy)
    done = runtime.generate(prompts, temperature=1.0, max_new_tokens=6, seeds=range(8))
    scores = runtime.score(prompts, [c.token_ids for c in done])
    full = engine(exact).score(prompts, [c.token_ids for c in done])
    for completion, score, reference in zip(done, scores, full, strict=True):
        assert completion.logprobs == pytest.approx(score, abs=0.1)
        assert score == pytest.approx(reference, abs=0.1)
    assert scores != full
    assert all(parameter.dtype == torch.float32 for parameter in policy.model.parameters())
