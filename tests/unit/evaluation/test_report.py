"""Tables in the papers' layout, from logs: the newest evaluation, or the mean of the last three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.evaluate import macro_rate, summarize
from sero_core.records import from_line, to_line
from sero_core.report import rows_of_run, table
from sero_core.types import IterationRecord, SeroError
from sero_core.types_evaluation import EvalOutcome, Evaluation
from tests.support.records import CONDITIONS


def evaluation(iteration: int, num_won: int, protocol: str = "fixed") -> Evaluation:
    """Ten light tasks, `num_won` of them won, and thirty picks, all won."""
    kinds = ["look_at_obj_in_light"] * 10 + ["pick_and_place_simple"] * 30
    wins = [i < num_won or i >= 10 for i in range(40)]
    outcomes = tuple(
        EvalOutcome(f"t{i}", kind, 1000, is_won, float(is_won), 9)
        for i, (kind, is_won) in enumerate(zip(kinds, wins, strict=True))
    )
    results = summarize("valid_seen", outcomes)
    return Evaluation(
        evaluation_id=f"valid_seen-{iteration}",
        iteration=iteration,
        panel="valid_seen",
        panel_hash="f" * 16,
        macro_rate=macro_rate(results),
        conditions=replace(CONDITIONS, protocol=protocol),
        results=results,
        outcomes=outcomes,
    )


def log(folder: Path, evaluations: list[Evaluation]) -> Path:
    folder.mkdir()
    lines = [to_line(IterationRecord(e.iteration, {}, (), (), (e,), None)) for e in evaluations]
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines) + '{"half')
    return folder


def test_a_fixed_run_is_its_newest_evaluation(tmp_path: Path) -> None:
    run = log(tmp_path / "grpo", [evaluation(0, 1), evaluation(5, 9), evaluation(10, 4)])
    [row] = rows_of_run(run)
    assert row.cells == pytest.approx({"Pick": 100, "Look": 40, "All": 85, "Macro": 70})
    assert row.note == "40 episodes, zero_shot, protocol fixed, iteration 10"


def test_a_paper_run_is_the_mean_of_its_last_three_and_never_the_best(tmp_path: Path) -> None:
    wins = [9, 2, 4, 6]
    items = [evaluation(5 * i, won, "paper 128") for i, won in enumerate(wins)]
    [row] = rows_of_run(log(tmp_path / "grpo", items))
    assert row.cells["Look"] == pytest.approx(40)
    assert row.cells["All"] == pytest.approx(85)
    assert row.note == "120 episodes, zero_shot, protocol paper 128, iterations 5, 10, 15"


def test_columns_have_the_papers_names_and_order(tmp_path: Path) -> None:
    rows = rows_of_run(log(tmp_path / "a", [evaluation(0, 1)]))
    rows += rows_of_run(log(tmp_path / "long name", [evaluation(0, 10)]))
    assert table(rows, is_markdown=False) == [
        "valid_seen   Pick   Look    All  Macro",
        "a           100.0   10.0   77.5   55.0  40 episodes, zero_shot, protocol fixed",
        "long name   100.0  100.0  100.0  100.0  40 episodes, zero_shot, protocol fixed",
    ]
    assert table(rows, is_markdown=True)[:3] == [
        "| valid_seen | Pick | Look | All | Macro |  |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        "| a | 100.0 | 10.0 | 77.5 | 55.0 | 40 episodes, zero_shot, protocol fixed |",
    ]


def test_webshop_has_score_and_success(tmp_path: Path) -> None:
    outcomes = [EvalOutcome(f"g{i}", "fashion", 1000, i == 0, (1, 0.5, 0)[i], 4) for i in range(3)]
    results = summarize("test", outcomes)
    item = replace(evaluation(0, 0), panel="test", results=results, outcomes=tuple(outcomes))
    [row] = rows_of_run(log(tmp_path / "shop", [item]))
    assert row.cells == pytest.approx({"Score": 50.0, "Succ.": 100 / 3})


def test_folders_without_a_log_or_an_evaluation_are_named(tmp_path: Path) -> None:
    with pytest.raises(SeroError, match=r"holds no records.jsonl"):
        rows_of_run(tmp_path)
    (tmp_path / "records.jsonl").write_text(
        to_line(IterationRecord(1, {}, (), (), (), None)) + "\n"
    )
    with pytest.raises(SeroError, match="no evaluation yet"):
        rows_of_run(tmp_path)


def test_a_line_of_version_0_1_is_still_read() -> None:
    line = to_line(IterationRecord(0, {}, (), (), (evaluation(0, 4),), None))
    payload = from_line(line).model_dump(mode="json")
    [old] = payload["evaluations"]
    del old["conditions"], old["macro_rate"]
    for result in old["results"]:
        del result["num_episodes"]
        del result["mean_score"]
    for item in old["outcomes"]:
        del item["seed"], item["score"]
    again = type(from_line(line)).model_validate(payload)
    assert again.evaluations[0].conditions is None
    assert [r.mean_score for r in again.evaluations[0].results] == [0.85, 0.4, 1.0]
    assert [r.num_episodes for r in again.evaluations[0].results] == [40, 10, 30]
