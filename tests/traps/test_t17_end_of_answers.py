"""T17: several end tokens, and answers that were cut.

A cut answer has been given an end token that nobody sampled, a forced stop token without a
log-probability has been trained on, and models with two end tokens have run past the second.
"""

from __future__ import annotations

import random

from sero_core.batch import PolicyRow, build_batch
from sero_core.engines.transformers import TransformersRuntime
from sero_core.sections import TransformersEngine
from sero_core.types import Completion
from tests.support.rows import run_update
from tests.support.tiny import EOS, VOCAB, tiny_policy

END_OF_TURN = 1
MAX_NEW = 9


def sampled() -> list[tuple[tuple[int, ...], Completion]]:
    policy = tiny_policy()
    assert policy.stop_ids == (END_OF_TURN, EOS)
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 9))) for _ in range(4)]
    done = TransformersRuntime(TransformersEngine(), policy).generate(
        prompts * 50, temperature=2.5, max_new_tokens=MAX_NEW, seeds=range(200)
    )
    return list(zip(prompts * 50, done, strict=True))


def test_t17_both_end_tokens_end_an_answer_and_stay_in_its_ids() -> None:
    policy = tiny_policy()
    ends: set[int] = set()
    for _, completion in sampled():
        assert not set(completion.token_ids[:-1]) & {END_OF_TURN, EOS}
        assert completion.is_truncated == (completion.token_ids[-1] not in (END_OF_TURN, EOS))
        assert completion.is_truncated <= (len(completion.token_ids) == MAX_NEW)
        assert len(completion.logprobs) == len(completion.token_ids)
        words = completion.token_ids if completion.is_truncated else completion.token_ids[:-1]
        assert completion.text.split() == [
            policy.tokenizer.convert_ids_to_tokens(word) for word in words
        ]
        ends.add(completion.token_ids[-1])
    assert {END_OF_TURN, EOS} <= ends


def test_t17_a_cut_answer_is_trained_as_it_was_sampled() -> None:
    """Flagged, no end token appended, as many trained tokens as were sampled, and ratio 1 on all
    of them, which an invented token would break."""
    cut = [(prompt, c) for prompt, c in sampled() if c.is_truncated]
    assert len(cut) > 5
    rows = [PolicyRow(prompt, c.token_ids, 1.0, c.logprobs, 2.5) for prompt, c in cut]
    batch = build_batch(rows)
    for (_, completion), ids, mask in zip(cut, batch.input_ids, batch.masks, strict=True):
        assert int(ids[-1]) == completion.token_ids[-1]
        assert int(ids[-1]) not in (END_OF_TURN, EOS)
        assert mask.tolist() == [True] * MAX_NEW
    metrics = run_update(tiny_policy(), batch)
    assert metrics["train/tokens"] == MAX_NEW * len(cut)
    assert metrics["numerics/ratio_first_max"] < 1e-4
