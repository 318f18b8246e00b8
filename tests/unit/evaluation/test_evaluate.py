"""Wilson intervals, effective numbers of episodes, tables, seeds and panels of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.collect import Sampling
from sero_core.evaluate import (
    Panel,
    effective_episodes,
    evaluate,
    evaluation_number,
    macro_rate,
    rates_by_seed,
    summarize,
    tasks_hash,
    wilson_interval,
)
from sero_core.metrics import evaluation_metrics
from sero_core.protocols import FixedProtocol, PaperProtocol
from sero_core.types import Episode, Task
from sero_core.types_evaluation import EvalOutcome
from tests.support.episodes import episode_of
from tests.support.records import CONDITIONS

SAMPLING = Sampling(temperature=0.4, max_new_tokens=8)
TASKS = tuple(
    Task(f"valid_seen/{i}", "alfworld", "valid_seen", ("look", "pick")[i % 2], "", f"h{i}")
    for i in range(6)
)
PANEL = Panel("valid_seen", TASKS, tasks_hash(TASKS))


def outcome(task: str, kind: str, is_won: bool, num_steps: int, seed: int = 1000) -> EvalOutcome:
    return EvalOutcome(task, kind, seed, is_won, 1.0 if is_won else 0.25, num_steps)


@dataclass(slots=True)
class Player:
    """An agent that wins where `wins` says so, and loses task 5 altogether."""

    wins: dict[int, set[str]]
    played: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)

    def play(
        self, tasks: Sequence[Task], *, sampling: Sampling, seed: int, prefix: str
    ) -> list[Episode | None]:
        self.played.append((seed, prefix, tuple(task.task_id for task in tasks)))
        return [self._episode(task, seed) for task in tasks]

    def _episode(self, task: Task, seed: int) -> Episode | None:
        if task.task_id == "valid_seen/5":
            return None
        is_won = task.task_id in self.wins[seed]
        return replace(episode_of(float(is_won), length=3), task=task)


def test_wilson_interval_against_published_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81/263, 15/148, 0/20, 1/29
    for won, total, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        got = wilson_interval(won, total)
        assert got == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_interval_contains_the_rate_and_stays_in_range(won: int, lost: int) -> None:
    low, high = wilson_interval(won, won + lost)
    assert 0 <= low <= high <= 1
    if won + lost:
        assert low - 1e-12 <= won / (won + lost) <= high + 1e-12


def test_rows_of_the_types_add_up_to_all() -> None:
    outcomes = [
        outcome("a", "look", True, 3),
        outcome("b", "look", False, 9),
        outcome("c", "pick", True, 5),
    ]
    rows = summarize("valid_seen", outcomes)
    assert [(row.task_type, row.num_won, row.num_tasks, row.num_episodes) for row in rows] == [
        ("all", 2, 3, 3),
        ("look", 1, 2, 2),
        ("pick", 1, 1, 1),
    ]
    assert rows[0].mean_steps == pytest.approx(17 / 3)
    assert rows[0].mean_score == pytest.approx(2.25 / 3)
    assert (rows[0].low, rows[0].high) == pytest.approx(wilson_interval(2, 3))
    assert macro_rate(rows) == pytest.approx((0.5 + 1.0) / 2)


def test_playing_the_same_tasks_again_does_not_narrow_the_interval() -> None:
    once = summarize("p", [outcome(f"t{i}", "x", i < 3, 5) for i in range(10)])[0]
    thrice = summarize(
        "p", [outcome(f"t{i}", "x", i < 3, 5, seed) for seed in range(3) for i in range(10)]
    )[0]
    assert (thrice.num_tasks, thrice.num_episodes, thrice.num_won) == (10, 30, 9)
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_effective_episodes_lie_between_one_and_the_number_of_tasks(plays: list[int]) -> None:
    effective = effective_episodes(plays)
    assert 1 <= effective <= len(plays) + 1e-9
    if len(set(plays)) == 1:
        assert effective == pytest.approx(len(plays))


def test_effective_episodes_by_hand() -> None:
    assert effective_episodes([2, 1, 1]) == pytest.approx(16 / 6)
    assert effective_episodes([]) == 0.0


def test_an_evaluation_plays_every_seed_and_keeps_paired_outcomes() -> None:
    player = Player({7: {"valid_seen/0", "valid_seen/1"}, 8: {"valid_seen/0"}})
    found = evaluate(
        player,
        PANEL,
        FixedProtocol(),
        sampling=SAMPLING,
        iteration=5,
        number=1,
        conditions=replace(CONDITIONS, seeds=(7, 8)),
    )
    ids = tuple(task.task_id for task in TASKS)
    assert player.played == [(7, "eval5-", ids), (8, "eval5-s1-", ids)]
    assert [(o.task_id, o.seed) for o in found.outcomes] == [
        (task, seed) for seed in (7, 8) for task in ids[:5]
    ]
    assert rates_by_seed(found.outcomes) == {7: 2 / 5, 8: 1 / 5}
    assert (found.results[0].rate, found.results[0].num_episodes) == (pytest.approx(0.3), 10)
    assert found.panel_hash == PANEL.data_hash, "both seeds play one list"
    metrics = evaluation_metrics([found])
    assert metrics["eval/valid_seen"] == pytest.approx(0.3)
    assert metrics["eval/valid_seen_macro"] == pytest.approx((2 / 6 + 1 / 4) / 2)
    assert metrics["eval/valid_seen_seed_std"] == pytest.approx(0.1 * 2**0.5)


def test_the_panel_hash_covers_what_the_paper_protocol_drew() -> None:
    def panel_hash(number: int, seed: int) -> str:
        return evaluate(
            Player({seed: set()}),
            PANEL,
            PaperProtocol(num_draws=4),
            sampling=SAMPLING,
            iteration=0,
            number=number,
            conditions=replace(CONDITIONS, seeds=(seed,)),
        ).panel_hash

    assert panel_hash(0, 1000) == panel_hash(0, 1000)
    assert len({panel_hash(0, 1000), panel_hash(1, 1000), panel_hash(0, 1)}) == 3


@pytest.mark.parametrize(
    ("iteration", "every", "number"),
    [(0, 5, 0), (5, 5, 1), (10, 5, 2), (12, 5, 3), (0, 0, 0), (12, 0, 1), (3, 5, 1)],
)
def test_evaluations_are_counted(iteration: int, every: int, number: int) -> None:
    assert evaluation_number(iteration, every) == number


def test_tasks_hash_covers_order_and_contents() -> None:
    a, b = (Task(name, "alfworld", "train", "x", "", "hash" + name) for name in "ab")
    other = Task("a", "alfworld", "train", "x", "", "changed")
    assert len({tasks_hash(tasks) for tasks in [(a, b), (b, a), (other, b)]}) == 3
