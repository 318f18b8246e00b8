"""Root rules: who is eligible, and how often each step is drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sero_core.branching.roots import Root, choose_roots
from sero_core.config import RootRule
from sero_core.types import Episode, Group
from tests.support.episodes import group_of

NUM_DRAWS = 3000
FAILED = group_of([0, 0, 0], [7, 7, 7])
RULES = ("disagree", "uniform", "failed_only", "first_divergence", "stratified", "start")


def draw(
    group: Group, rule: str, seed: int = 0, differing: Sequence[int] = (), **changes: object
) -> list[Root]:
    config = RootRule.model_validate({"rule": rule, **changes})
    return choose_roots(group, config, lambda _, index: index in differing, random.Random(seed))


def frequencies(group: Group, rule: str, differing: Sequence[int] = ()) -> dict[int, float]:
    """Share of each step among the roots of many draws."""
    roots = [root for seed in range(NUM_DRAWS) for root in draw(group, rule, seed, differing)]
    counts = Counter(root.index for root in roots)
    return {index: count / len(roots) for index, count in sorted(counts.items())}


def assert_uniform(got: dict[int, float], steps: Sequence[int]) -> None:
    assert set(got) == set(steps)
    assert got == pytest.approx(dict.fromkeys(steps, 1 / len(steps)), abs=0.03)


def test_disagree_is_uniform_over_the_steps_where_the_oracle_differs() -> None:
    assert_uniform(frequencies(FAILED, "disagree", differing=(1, 2, 5)), (1, 2, 5))
    assert {root.rule for root in draw(FAILED, "disagree", differing=(1,))} == {"disagree"}


def test_first_divergence_is_the_first_of_them() -> None:
    assert set(frequencies(FAILED, "first_divergence", differing=(2, 4, 5))) == {2}


@pytest.mark.parametrize("rule", ["disagree", "first_divergence"])
def test_where_the_oracle_agrees_everywhere_any_step_is_drawn_and_the_root_says_so(
    rule: str,
) -> None:
    assert_uniform(frequencies(FAILED, rule), range(6))
    assert {root.rule for root in draw(FAILED, rule)} == {"uniform"}


@pytest.mark.parametrize("rule", ["uniform", "failed_only"])
def test_uniform_rules_draw_every_step_but_the_last(rule: str) -> None:
    assert_uniform(frequencies(FAILED, rule), range(6))


def test_disagree_asks_the_oracle_no_longer_than_it_must() -> None:
    asked: list[int] = []

    def differs(_: Episode, index: int) -> bool:
        asked.append(index)
        return True

    choose_roots(FAILED, RootRule(per_group=1), differs, random.Random(0))
    assert len(asked) == 1


def test_stratified_draws_each_third_equally_often_and_differently_within_a_group() -> None:
    group = group_of([0, 0, 0], [10, 10, 10])
    got = frequencies(group, "stratified")
    assert_uniform(got, range(9))
    for seed in range(50):
        roots = draw(group, "stratified", seed, per_group=3)
        assert sorted(root.index // 3 for root in roots) == [0, 1, 2]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_stratified_in_episodes_shorter_than_three_thirds(length: int) -> None:
    group = group_of([0], [length])
    indices = {root.index for seed in range(60) for root in draw(group, "stratified", seed)}
    assert indices == set(range(length - 1))


def test_start_is_step_zero_of_one_episode() -> None:
    assert [(root.index, root.rule) for root in draw(FAILED, "start")] == [(0, "start")]
    assert len(draw(FAILED, "start", per_group=3)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_failed_episodes_come_first_and_each_gives_one_root(rule: str) -> None:
    group = group_of([1, 0, 1, 0], [5, 6, 7, 8])
    for seed in range(40):
        roots = draw(group, rule, seed, differing=(1, 2), per_group=3)
        episodes = [root.episode.index for root in roots]
        assert len(set(episodes)) == len(episodes) <= 3
        if rule == "start":
            assert not roots[0].episode.is_won
        else:
            assert set(episodes[:2]) == {1, 3}
            assert len(episodes) == (2 if rule == "failed_only" else 3)


@pytest.mark.parametrize("rule", RULES)
def test_a_solved_group_is_skipped_unless_asked_for(rule: str) -> None:
    group = group_of([1, 1], [4, 4])
    assert draw(group, rule) == []
    kept = draw(group, rule, skip_solved_group=False)
    assert len(kept) == {"failed_only": 0, "start": 1}.get(rule, 2)


def test_an_episode_of_one_step_has_no_root_and_takes_nobodys_place() -> None:
    group = group_of([0, 0, 0], [1, 1, 4])
    for rule in RULES[:-1]:
        assert [root.episode.index for root in draw(group, rule)] == [2]
