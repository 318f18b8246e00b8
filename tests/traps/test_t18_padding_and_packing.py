"""T18: padding, packing and positions change no number, and no row sees another.

Left padding that shifts positions, packed rows that attend to each other, and labels rolled by one
over the whole line (the last token of a row "predicts" the first of the next) are the three ways
this goes wrong in real code.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sero_core.batch import TokenRows, build_batch, microbatches, pack, pad
from sero_core.forward import Passes, token_outputs
from sero_core.policy import Policy
from sero_core.sections import PolicyLoss
from tests.support.rows import distance, policy_gradient, sampled_rows
from tests.support.tiny import VOCAB, tiny_policy
from tests.support.tiny_gpt2 import tiny_gpt2

CPU = torch.device("cpu")
MODELS = pytest.mark.parametrize("make", [tiny_policy, tiny_gpt2])
PROMPT = (7, 8, 9)
ANSWER = (11, 12, 13, 14)


def logprobs(policy: Policy, rows: TokenRows) -> torch.Tensor:
    ones_N = torch.ones(len(rows.row_N))
    with torch.no_grad():
        return token_outputs(policy, rows, ones_N, entropy="none", head_tokens=512).logprobs_N


def alone(policy: Policy, ids: torch.Tensor, prompt_len: int) -> torch.Tensor:
    """The library's own forward pass over one row."""
    with torch.no_grad():
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids[None]).logits[0, :-1], dim=-1)
    return logprobs_LV.gather(1, ids[1:, None])[prompt_len - 1 :, 0]


@MODELS
@pytest.mark.parametrize("num_pads", [0, 1, 7])
def test_t18_pads_change_nothing(make: Callable[[], Policy], num_pads: int) -> None:
    policy, ids = make(), torch.tensor(PROMPT + ANSWER)
    other = torch.tensor([5] * (len(ids) + num_pads))
    rows = pad([ids, other], [len(PROMPT), len(other) - 1], CPU)
    assert rows.input_ids_BL.shape == (2, len(ids) + num_pads)
    got_N = logprobs(policy, rows)[rows.row_N == 0]
    assert torch.allclose(got_N, alone(policy, ids, len(PROMPT)), atol=1e-5)


@MODELS
def test_t18_packed_rows_equal_padded_ones(make: Callable[[], Policy]) -> None:
    policy, rng = make(), random.Random(0)
    ids = [torch.tensor([rng.randrange(3, VOCAB) for _ in range(n)]) for n in (9, 4, 2, 13, 9)]
    prompt_lens = [3, 1, 1, 12, 8]
    packed, padded = pack(ids, prompt_lens, CPU), pad(ids, prompt_lens, CPU)
    assert packed.input_ids_BL.shape == (1, 37)
    assert packed.target_N.tolist() == padded.target_N.tolist()
    assert packed.row_N.tolist() == padded.row_N.tolist()
    assert torch.allclose(logprobs(policy, packed), logprobs(policy, padded), atol=1e-5)
    want_N = torch.cat([alone(policy, *row) for row in zip(ids, prompt_lens, strict=True)])
    assert torch.allclose(logprobs(policy, packed), want_N, atol=1e-5)


@MODELS
def test_t18_a_packed_row_does_not_see_the_one_before(make: Callable[[], Policy]) -> None:
    policy, row = make(), torch.tensor(PROMPT + ANSWER)
    seen = [
        logprobs(policy, pack([torch.tensor([3, token, 6]), row], [2, len(PROMPT)], CPU))[1:]
        for token in (4, 40)
    ]
    assert torch.equal(seen[0], seen[1])


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8))
def test_t18_a_rows_last_token_never_predicts_the_next_row(sizes: list[tuple[int, int]]) -> None:
    """Ids are all different, so each target tells where it came from."""
    ids: list[torch.Tensor] = []
    for prompt_len, answer_len in sizes:
        first = sum(len(row) for row in ids)
        ids.append(torch.arange(first, first + prompt_len + answer_len))
    prompt_lens = [prompt_len for prompt_len, _ in sizes]
    answers = [row[n:].tolist() for row, n in zip(ids, prompt_lens, strict=True)]
    for lay_out in (pack, pad):
        rows = lay_out(ids, prompt_lens, CPU)
        flat = rows.input_ids_BL.flatten()
        assert rows.target_N.tolist() == [token for answer in answers for token in answer]
        for slot, target, row in zip(rows.slot_N, rows.target_N, rows.row_N, strict=True):
            assert int(flat[slot]) == int(target) - 1, "the token just before, of the same row"
            assert int(flat[slot]) in ids[int(row)].tolist()
    packed = pack(ids, prompt_lens, CPU)
    assert packed.position_ids_BL is not None
    want = [position for row in ids for position in range(len(row))]
    assert packed.position_ids_BL.flatten().tolist() == want


@pytest.mark.parametrize("kl_coef", [0.0, 0.05])
def test_t18_the_gradient_is_the_same_in_both_layouts(kl_coef: float) -> None:
    policy, reference = tiny_policy(), tiny_policy(seed=1)
    batch = build_batch(sampled_rows(policy))
    loss = PolicyLoss(kl_coef=kl_coef, entropy_coef=kl_coef / 10)
    want = policy_gradient(policy, batch, loss, Passes(4096, False, 512), reference)
    for tokens in (4096, 64, 1):
        got = policy_gradient(policy, batch, loss, Passes(tokens, True, 512), reference)
        assert distance(got, want) < 1e-5


@given(lengths=st.lists(st.integers(1, 40), max_size=30), budget=st.integers(1, 200))
def test_t18_packed_groups_hold_every_row_once_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    groups = microbatches(lengths, range(len(lengths)), budget, is_packed=True)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or sum(lengths[row] for row in group) <= budget
