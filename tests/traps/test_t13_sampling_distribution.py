"""T13: sampler and trainer mean the same distribution; truncated sampling is refused.

A sampler that reports raw log-probabilities while the trainer divides by the temperature, or that
renormalises over a nucleus, biases every ratio.
"""

from __future__ import annotations

import pytest

from sero_core.batch import build_batch
from sero_core.config import ConfigError, parse_config
from sero_core.engines.transformers import TransformersRuntime
from sero_core.sections import TransformersEngine
from tests.support.rows import run_update, sampled_rows
from tests.support.tiny import tiny_policy


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_t13_sampled_logprobs_are_those_of_the_sampling_distribution(temperature: float) -> None:
    policy = tiny_policy()
    runtime = TransformersRuntime(TransformersEngine(batch_size=5), policy)
    prompts = [row.prompt_ids for row in sampled_rows(policy)]
    done = runtime.generate(prompts, temperature=temperature, max_new_tokens=9, seeds=range(16))
    answers = [completion.token_ids for completion in done]
    scores = runtime.score(prompts, answers, temperature=temperature)
    for completion, score in zip(done, scores, strict=True):
        assert completion.logprobs == pytest.approx(score, abs=1e-5)


def test_t13_a_row_at_the_wrong_temperature_shows_on_the_panel() -> None:
    policy = tiny_policy()
    rows = sampled_rows(policy, temperature=0.6)
    wrong = [row.__class__(row.prompt_ids, row.token_ids, 1.0, row.old_logprobs) for row in rows]
    metrics = run_update(policy, build_batch(wrong))
    assert metrics["numerics/ratio_first_max"] > 0.1
    assert metrics["numerics/outside_clip_first"] > 0.1


@pytest.mark.parametrize(("key", "value"), [("top_p", 0.9), ("top_k", 50), ("min_p", 0.1)])
def test_t13_a_truncated_distribution_is_no_option_of_training(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"sampling\.{key}: Extra inputs are not permitted"):
        parse_config({"sampling": {key: value}}, "test")
