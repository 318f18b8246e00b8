"""Formats, series, tables and chart specs."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import get_args

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.schemas import (
    AttemptInfo,
    CompareResponse,
    DepthMapResponse,
    EvaluationInfo,
    JobState,
    MetricsResponse,
    Outcome,
    RunStatus,
    RunSummary,
)
from dashboard.view import badges, charts, format, series, tables
from tests.support.records import CONDITIONS

Series = dict[str, object]
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def run(**changes: object) -> RunSummary:
    values: dict[str, object] = {
        "id": 12,
        "name": "demo",
        "status": "running",
        "reason": None,
        "method": "sero",
        "env": "alfworld",
        "preset": "sero_demo",
        "seed": 3,
        "config_hash": "ab",
        "iteration": 10,
        "num_iterations": 40,
        "attempt": 1,
        "created_at": NOW - timedelta(minutes=11),
        "started_at": NOW - timedelta(minutes=10),
        "finished_at": None,
        "heartbeat_at": NOW - timedelta(seconds=4),
        "success": 0.25,
        "best_success": 0.5,
        "effective_depth": 2.5,
        "num_branches": 7,
        "num_episodes": 9,
        "eval_valid_seen": 0.2,
        "eval_valid_unseen": None,
        "best_eval_valid_seen": 0.2,
        "best_eval_valid_unseen": None,
        "eval_test": None,
        "best_eval_test": None,
    }
    return RunSummary.model_validate(values | changes)


def metrics(*points: tuple[int, float | None], key: str = "train/loss", size: int = 1) -> Series:
    return {
        "key": key,
        "points": [
            {
                "iteration": iteration,
                "first_iteration": iteration - size + 1,
                "last": value,
                "min": None if value is None else value - (size > 1),
                "max": None if value is None else value + (size > 1),
                "num_values": size,
                "num_not_finite": int(value is None),
            }
            for iteration, value in points
        ],
    }


def response(*items: Series) -> MetricsResponse:
    return MetricsResponse.model_validate(
        {"run_id": 1, "bucket_iterations": 1, "last_iteration": 3, "series": list(items)}
    )


def evaluation(
    panel: str, iteration: int, rate: float, run_id: int = 12, *, is_old: bool = False
) -> EvaluationInfo:
    results = [
        {
            "task_type": kind,
            "num_tasks": 100,
            "num_episodes": 100,
            "num_won": round(100 * rate),
            "rate": rate,
            "low": rate - 0.1,
            "high": rate + 0.1,
            "mean_score": rate,
            "mean_steps": 9.5,
        }
        for kind in ("all", "pick_two_obj_and_place", "pick_and_place_simple")
    ]
    return EvaluationInfo.model_validate(
        {
            "run_id": run_id,
            "evaluation_id": f"{panel}-{iteration}",
            "job_id": 1,
            "iteration": iteration,
            "panel": panel,
            "panel_hash": "f",
            "macro_rate": rate / 2,
            "conditions": None if is_old else asdict(CONDITIONS),
            "created_at": NOW,
            "results": results,
        }
    )


class TestFormat:
    @pytest.mark.parametrize(
        ("value", "text"), [(None, "–"), (0.615, "61.5 %"), (1.0, "100.0 %"), (math.nan, "NaN")]
    )
    def test_percent(self, value: float | None, text: str) -> None:
        assert format.percent(value) == text

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0, "0 s"), (-3, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"),
         (273_600, "3 d 4 h")],
    )  # fmt: skip
    def test_duration(self, seconds: float, text: str) -> None:
        assert format.duration(seconds) == text

    def test_interval(self) -> None:
        assert format.interval(0.5, 0.4, 0.6) == "50.0 % (40.0–60.0)"
        assert format.interval(None, None, None) == "–"

    def test_goal_of_a_first_observation(self) -> None:
        text = "You are in a room.\n\nYour task is to: put a hot apple in fridge."
        assert format.goal(text) == "put a hot apple in fridge"
        assert format.goal("Nothing happens.") is None
        for text in (
            "WebShop [SEP] Instruction: [SEP] Get me a mug, red [SEP] Search",
            "WebShop\nInstruction: \nGet me a mug, red\n[button] Search [button_]\n",
        ):
            assert format.goal(text) == "Get me a mug, red"

    def test_eta_is_the_average_pace(self) -> None:
        assert format.eta_s(run(), NOW) == pytest.approx(1800)
        assert format.eta_s(run(iteration=0), NOW) is None
        assert format.eta_s(run(status="succeeded"), NOW) is None

    def test_task_type_and_back(self) -> None:
        for name in format.TASK_TYPE_ORDER:
            assert format.task_type_id(format.task_type(name)) == name

    @given(st.text())
    def test_plain_text_has_no_bare_markdown(self, text: str) -> None:
        made = format.plain(text)
        for mark in "<[]`*$":
            bare = made.replace("\\\\", "").replace(f"\\{mark}", "")
            assert mark not in bare

    def test_sizes(self) -> None:
        assert [format.byte_size(n) for n in (7, 3_500_000, 5 * 10**12)] == [
            "7 B", "3.5 MB", "5000.0 GB",
        ]  # fmt: skip


class TestSeries:
    def test_a_value_that_is_not_finite_is_left_out_and_counted(self) -> None:
        data = response(metrics((1, 0.5), (2, None), (3, 0.7)))
        frame = series.frame(data, {"train/loss": "loss"})
        assert list(frame["x"]) == [1, 3]
        assert series.num_not_finite(data, ["train/loss"]) == 1

    def test_an_absent_metric_gives_an_empty_frame(self) -> None:
        frame = series.frame(response(), {"train/loss": "loss"})
        assert list(frame.columns) == series.COLUMNS
        assert frame.empty

    def test_x_axis_of_environment_steps(self) -> None:
        steps = metrics((1, 60.0), (2, 120.0), (3, 180.0), key="progress/env_steps")
        frame = series.frame(
            response(metrics((1, 1.0), (3, 2.0)), steps), {"train/loss": "loss"}, "env_steps"
        )
        assert list(frame["x"]) == [60, 180]

    def test_x_axis_of_hours_sums_seconds(self) -> None:
        seconds = metrics((1, 3600.0), (2, 1800.0), key="time/iteration_s")
        frame = series.frame(
            response(metrics((1, 1.0), (2, 2.0)), seconds), {"train/loss": "loss"}, "hours"
        )
        assert list(frame["x"]) == [1.0, 1.5]

    def test_an_axis_that_was_not_logged_gives_an_empty_frame(self) -> None:
        frame = series.frame(response(metrics((1, 1.0))), {"train/loss": "loss"}, "tokens")
        assert frame.empty

    def test_smoothing_is_debiased(self) -> None:
        assert series.smooth([2.0, 2.0, 2.0], 0.9) == pytest.approx([2.0, 2.0, 2.0])
        assert series.smooth([0.0, 1.0], 0.5) == pytest.approx([0.0, 2 / 3])
        with pytest.raises(ValueError, match="smoothing"):
            series.smooth([1.0], 1.0)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 0.99))
    def test_smoothing_stays_within_the_values(self, values: list[float], factor: float) -> None:
        for value in series.smooth(values, factor):
            assert min(values) - 1e-3 <= value <= max(values) + 1e-3


class TestCharts:
    def test_one_point_is_drawn(self) -> None:
        frame = series.frame(response(metrics((1, 0.5))), {"train/loss": "loss"})
        spec = charts.curves(frame, y_title="").to_dict()
        assert spec["layer"][0]["mark"]["point"] is True

    def test_a_merged_bucket_has_a_band(self) -> None:
        frame = series.frame(response(metrics((4, 0.5), size=4)), {"train/loss": "loss"})
        marks = [
            layer["mark"]["type"] for layer in charts.curves(frame, y_title="").to_dict()["layer"]
        ]
        assert marks[0] == "area"

    def test_colors_are_the_theme_s(self) -> None:
        frame = series.frame(response(metrics((1, 0.5))), {"train/loss": "loss"})
        assert "range" not in str(charts.curves(frame, y_title="").to_dict())

    def test_rates_have_an_axis_from_0_to_1(self) -> None:
        frame = series.frame(response(metrics((1, 0.5))), {"train/loss": "loss"})
        spec = charts.curves(frame, y_title="", is_rate=True).to_dict()
        assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, 1]

    def test_success_has_wilson_bars(self) -> None:
        rollout = series.frame(response(metrics((1, 0.5))), {"train/loss": "training rollouts"})
        found = charts.evaluation_frame([evaluation("valid_seen", 0, 0.4)])
        spec = charts.success(rollout, found).to_dict()
        rule = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "rule")
        assert rule["encoding"]["y"]["field"] == "low"
        assert rule["encoding"]["y2"]["field"] == "high"

    def test_cells_with_few_steps_are_paler(self) -> None:
        cells = [
            {"iteration": 1, "depth": 0, "mean_weight": 1.0, "num_steps": 100},
            {"iteration": 1, "depth": 1, "mean_weight": 0.4, "num_steps": 1},
        ]
        depths = DepthMapResponse.model_validate(
            {"run_id": 1, "bucket_iterations": 1, "cells": cells, "buckets": []}
        )
        [values] = charts.weight_heatmap(depths).to_dict()["datasets"].values()
        assert values[0]["solid"] > 2 * values[1]["solid"]

    def test_empty_charts_are_specs_too(self) -> None:
        empty = pd.DataFrame(columns=series.COLUMNS)
        nothing = DepthMapResponse(run_id=1, bucket_iterations=1, cells=[], buckets=[])
        charts.success(empty, charts.evaluation_frame([])).to_dict()
        charts.weight_heatmap(nothing).to_dict()


class TestTables:
    def test_runs(self) -> None:
        [row] = tables.runs([run()], NOW).to_dict("records")
        assert row["status"] == "▶ running"
        assert row["iteration"] == "10 / 40"
        assert row["progress"] == 0.25
        assert row["heartbeat"] == "4 s ago"

    def test_runs_show_the_panels_of_their_environments(self) -> None:
        shop = run(env="webshop", eval_test=0.4, eval_valid_seen=None)
        for items, shown in (
            ([run()], {"seen", "unseen"}),
            ([shop], {"test"}),
            ([run(), shop], {"seen", "unseen", "test"}),
        ):
            for table in (tables.runs(items, NOW), tables.compared_runs(items)):
                assert {"seen", "unseen", "test"} & set(table) == shown
        assert list(tables.runs([shop], NOW)["test"]) == [40.0]

    def test_newest_evaluation_by_task_type_with_counts(self) -> None:
        items = [evaluation("valid_seen", 0, 0.1), evaluation("valid_seen", 5, 0.5)]
        table = tables.evaluation(items)
        assert list(table["task type"]) == ["Pick", "Pick two", "All"]
        assert table["seen: success (95 %)"][0] == "50.0 % (40.0–60.0)"
        assert table["seen: won"][0] == "50 / 100"

    def test_a_dense_score_has_a_column_where_it_is_not_the_rate(self) -> None:
        item = evaluation("valid_seen", 0, 0.25)
        assert "seen: score" not in tables.evaluation([item])
        graded = [result.model_copy(update={"mean_score": 0.5}) for result in item.results]
        table = tables.evaluation([item.model_copy(update={"results": graded})])
        assert set(table["seen: score"]) == {"50.0 %"}

    def test_conditions_of_the_newest_evaluations(self) -> None:
        items = [evaluation("valid_seen", 0, 0.1), evaluation("valid_unseen", 0, 0.1, is_old=True)]
        table = tables.conditions(items).set_index("condition")
        assert table.loc["protocol"].to_dict() == {"seen": "fixed", "unseen": "–"}
        assert table.loc["policy hash", "seen"] == "a" * 16
        assert table.loc["seeds", "seen"] == "1000"
        assert table.loc["macro", "seen"] == "5.0 %"

    def test_compare(self) -> None:
        data = CompareResponse.model_validate(
            {
                "runs": [run(), run(id=13, seed=4)],
                "config_differences": [{"key": "sero", "values": {12: {"horizon": 1}}}],
                "evaluations": [evaluation("valid_seen", 5, 0.5)],
                "metric_keys": [],
            }
        )
        [row] = tables.config_differences(data).to_dict("records")
        assert row["#13 demo · seed 4"] == "(absent)"
        assert row["#12 demo · seed 3"] == '{"horizon": 1}'
        [row] = tables.compared_evaluations(data, "valid_seen").to_dict("records")
        assert row["All"] == "50.0 % (40.0–60.0)"
        assert list(tables.interval_frame(data, "valid_seen")["task_type"]) == [
            "Pick", "Pick two", "All",
        ]  # fmt: skip

    def test_every_state_of_the_api_has_a_badge(self) -> None:
        attempt = AttemptInfo.model_fields["state"].annotation
        for name in {*get_args(JobState), *get_args(RunStatus), *get_args(attempt)}:
            assert badges.state(name).label
        for name in get_args(Outcome):
            assert badges.outcome(name).label
