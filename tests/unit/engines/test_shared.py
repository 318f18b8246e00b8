"""Rows that begin alike: families, and the same log-probabilities as a row read alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.engines import shared
from sero_core.engines.shared import Family, Row, families, num_read, score_families, worthwhile
from sero_core.engines.transformers import TransformersRuntime
from sero_core.policy import Policy
from sero_core.sections import TransformersEngine
from tests.support.tiny import VOCAB, tiny_policy
from tests.support.tiny_gpt2 import tiny_gpt2

TOKENS = st.lists(st.integers(3, 5), min_size=2, max_size=40)


def random_ids(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(3, VOCAB) for _ in range(length))


def branch_like(seed: int = 0) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Prompts and completions: three tasks with growing histories, each with many actions."""
    rng = random.Random(seed)
    prompts: list[tuple[int, ...]] = []
    completions: list[tuple[int, ...]] = []
    for _ in range(3):
        history = random_ids(rng, 25)
        for _ in range(3):
            history += random_ids(rng, rng.randrange(1, 6))
            prompt, start = history + random_ids(rng, 9), random_ids(rng, 2)
            actions = [start + random_ids(rng, rng.randrange(1, 7)) for _ in range(8)]
            prompts += [prompt] * len(actions)
            completions += actions
    order = rng.sample(range(len(prompts)), len(prompts))
    return [prompts[i] for i in order], [completions[i] for i in order]


@given(st.lists(TOKENS, max_size=12), st.integers(1, 3))
def test_families_split_the_rows_and_never_read_more(ids: list[list[int]], scored: int) -> None:
    rows = [Row(tuple(row), min(scored, len(row) - 1)) for row in ids]
    found = families(rows)
    assert sorted(m for family in found for m in family.members) == list(range(len(rows)))
    for family in found:
        first = rows[family.members[0]]
        for member in family.members:
            row = rows[member]
            assert row.ids[: family.num_shared] == first.ids[: family.num_shared]
            assert family.num_shared <= row.max_shared
    assert sum(num_read(rows, f) for f in found) <= sum(len(row.ids) for row in rows)


def test_families_of_actions_keep_the_whole_prompt() -> None:
    prompt = tuple(range(3, 43))
    rows = [Row((*prompt, 7, last), 2) for last in (3, 4, 5)] + [Row((*range(60, 20, -1), 3), 1)]
    assert families(rows) == [Family(39, (0, 1, 2)), Family(0, (3,))]
    assert worthwhile(rows, families(rows)) == [Family(39, (0, 1, 2))]


def test_what_saves_little_is_read_alone() -> None:
    """Two rows at best halve; with long ends they do not."""
    prompt = tuple(range(3, 43))
    short = [Row((*prompt, *range(3, 20), last), 1) for last in (3, 4)]
    assert num_read(short, families(short)[0]) == 56 + 2 * 2
    assert worthwhile(short, families(short)) == families(short)
    long = [Row((*prompt, last, *range(3, 20)), 1) for last in (3, 4)]
    assert families(long)[0].num_shared == 40
    assert worthwhile(long, families(long)) == []


@pytest.mark.parametrize("make", [tiny_policy, tiny_gpt2])
@pytest.mark.parametrize("line_tokens", [1, 20, 256])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_equals_every_row_read_alone(
    make: type[Policy], line_tokens: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T18 for a packed line: RoPE and learned positions, lines cut anywhere, chunked head."""
    policy = make()
    prompts, completions = branch_like()
    rows = [Row(p + c, len(c)) for p, c in zip(prompts, completions, strict=True)]
    found = families(rows)
    assert len(found) <= 9
    monkeypatch.setattr(shared, "LINE_TOKENS", line_tokens)
    got = score_families(
        policy, rows, found, temperature=temperature, forward_tokens=150, head_tokens=7
    )
    runtime = TransformersRuntime(TransformersEngine(), policy)
    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        alone = runtime.score([prompt], [completion], temperature=temperature)[0]
        assert got[number] == pytest.approx(alone, abs=1e-5)


def test_the_engine_shares_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`score` takes families where they pay, and mixes them with other rows in the order given."""
    policy = tiny_policy()
    runtime = TransformersRuntime(TransformersEngine(), policy)
    prompts, completions = branch_like(1)
    prompts += [(5, 6, 7), (9, 8)]
    completions += [(4, 5), ()]
    got = runtime.score(prompts, completions)
    tokens: list[int] = []
    handle = policy.body.register_forward_pre_hook(
        lambda _, __, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    again = runtime.score(prompts, completions)
    read = sum(tokens)
    handle.remove()
    monkeypatch.setattr(shared, "MAX_COST", 0.0)
    for number, alone in enumerate(runtime.score(prompts, completions)):
        assert got[number] == again[number] == pytest.approx(alone, abs=1e-5)
    assert read < 0.4 * sum(map(len, prompts))
