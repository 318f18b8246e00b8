"""T3: exactly the answer's tokens are trained, the end token among them, whatever their ids.

Masks have been inverted, have covered what the environment said, have left out the end token, and
have been guessed from the pad id where pad and end are one token.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sero_core.batch import PolicyRow, build_batch
from sero_core.forward import Passes
from sero_core.policy import Policy
from tests.support.rows import (
    PLAIN,
    distance,
    gradients,
    policy_gradient,
    rescored,
    run_update,
    sampled_rows,
)
from tests.support.tiny import tiny_policy

PAD = 0
END = 2
ROWS = [
    PolicyRow((5, END, 6, PAD), (7, PAD, 8, END), 1.5, (-1.0,) * 4),
    PolicyRow((9, 10), (11, PAD), -0.5, (-1.0,) * 2),
    PolicyRow((4,) * 9, (12, END, 13), 1.0, (-1.0,) * 3, mask=(True, False, True)),
]
"""Pad and end tokens occur in prompts and answers; the last token of the second answer is the pad
id, as where a model's pad and end token are one. One token is masked."""
TRAINED = [{3, 4, 5, 6}, {1, 2}, {8, 10}]
"""The positions whose output predicts an answer token that counts."""


def touched(policy: Policy, passes: Passes) -> list[set[int]]:
    """Positions of each row at which the last hidden state has a gradient."""
    batch = build_batch(rescored(policy, ROWS))
    states: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(
        _module: object, _args: object, kwargs: dict[str, torch.Tensor], output: object
    ) -> None:
        hidden = output.last_hidden_state  # pyright: ignore
        hidden.retain_grad()
        states.append((kwargs["input_ids"], hidden))

    handle = policy.body.register_forward_hook(keep, with_kwargs=True)
    policy_gradient(policy, batch, PLAIN, passes)
    handle.remove()
    found: list[set[int]] = [set() for _ in ROWS]
    for ids_BL, hidden_BLH in states:
        assert hidden_BLH.grad is not None
        is_touched_BL = hidden_BLH.grad.abs().amax(dim=-1) > 0
        for number, row in enumerate(ROWS):
            ids = torch.tensor(row.prompt_ids + row.token_ids)
            for line, start in _places(ids_BL, ids):
                hit = is_touched_BL[line, start : start + len(ids)]
                found[number] |= set(hit.nonzero().flatten().tolist())
                ids_BL[line, start : start + len(ids)] = -1  # the rest must be padding
        rest = is_touched_BL[ids_BL != -1]
        assert not bool(rest.any()), "padding has a gradient"
    return found


def _places(ids_BL: torch.Tensor, ids: torch.Tensor) -> list[tuple[int, int]]:
    size = len(ids)
    return [
        (line, start)
        for line in range(len(ids_BL))
        for start in range(ids_BL.shape[1] - size + 1)
        if torch.equal(ids_BL[line, start : start + size], ids)
    ]


@pytest.mark.parametrize("is_packed", [False, True])
def test_t03_the_gradient_is_on_the_answers_tokens_alone(is_packed: bool) -> None:
    assert touched(tiny_policy(), Passes(4096, is_packed, 512)) == TRAINED


def test_t03_the_gradient_is_that_of_the_librarys_own_forward_pass() -> None:
    """With the last prompt token added or the end token left out it is another one."""
    policy = tiny_policy()
    row = rescored(policy, [ROWS[0]])[0]
    got = policy_gradient(policy, build_batch([row]), PLAIN)
    first, size = len(row.prompt_ids), len(row.token_ids)

    def by_hand(start: int, stop: int) -> dict[str, torch.Tensor]:
        policy.model.zero_grad()
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids).logits[0, :-1], dim=-1)
        chosen_L = logprobs_LV.gather(1, ids[0, 1:, None])[:, 0]
        (-1.5 * chosen_L[start - 1 : stop - 1].sum() / size).backward()
        return gradients(policy)

    assert distance(got, by_hand(first, first + size)) < 1e-5
    for start, stop in ((first - 1, first + size), (first, first + size - 1)):
        assert distance(got, by_hand(start, stop)) > 1e-2


def test_t03_masked_tokens_have_no_gradient_and_are_counted() -> None:
    """Whatever their old log-probability: -30 there changes nothing, not even the last bit."""
    policy = tiny_policy()
    rows = sampled_rows(policy)
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
    left = policy_gradient(policy, build_batch(masked), PLAIN)
    assert distance(policy_gradient(policy, build_batch(broken), PLAIN), left) == 0.0
    metrics = run_update(policy, build_batch(masked))
    dropped = sum(len(row.token_ids) // 2 for row in rows)
    assert metrics["numerics/masked_tokens"] == dropped
    assert metrics["numerics/masked_grad_max"] == 0.0
    assert metrics["train/tokens"] == sum(len(row.token_ids) for row in rows) - dropped
