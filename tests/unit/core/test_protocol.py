"""Defaults that method and protocol set: what wins, what is recorded, what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.protocol_table import BEGIN, table, with_table
from sero_core.config import RolloutConfig, RunConfig, load_config
from sero_core.credit import ESTIMATORS
from sero_core.credit.dapo import DAPO
from sero_core.credit.grpo import GRPO
from sero_core.protocol import departures, flatten, verl_agent

DOCS = Path(__file__).parents[3] / "docs" / "methods.md"
NAMES = [member.model_fields["name"].default for member in ESTIMATORS]


def run(**fields: object) -> RunConfig:
    return RunConfig.model_validate(fields)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_the_protocol_is_set(name: str) -> None:
    config = run(protocol="verl-agent", estimator={"name": name})
    filled = flatten(config.model_dump(mode="json"))
    asked = flatten(verl_agent(name, "alfworld"))
    own = flatten(dict(type(config.estimator).defaults))
    for field, value in asked.items():
        assert filled[field] == own.get(field, value), field


def test_what_the_user_writes_wins_over_method_and_protocol() -> None:
    config = run(
        protocol="verl-agent",
        estimator={"name": "dapo", "statistics": "episodes"},
        loss={"clip_high": 0.3},
        rollout={"group_size": 4},
    )
    assert isinstance(config.estimator, DAPO)
    assert config.estimator.statistics == "episodes"
    assert config.estimator.singleton == "raw"
    assert (config.loss.clip_low, config.loss.clip_high) == (0.2, 0.3)
    assert (config.rollout.group_size, config.rollout.num_tasks) == (4, 16)
    assert config.rollout.max_rounds == 10
    assert config.loss.entropy_coef == 0.001


def test_a_method_sets_its_own_defaults_under_any_protocol() -> None:
    assert run(estimator={"name": "dapo"}).loss.clip_high == 0.28
    assert run(estimator={"name": "dapo"}).rollout.max_rounds == 10
    assert run(estimator={"name": "grpo"}).loss.clip_high == 0.2


def test_models_as_sections_count_only_what_was_set_on_them() -> None:
    config = run(protocol="verl-agent", estimator=GRPO(ddof=0), rollout=RolloutConfig(num_tasks=3))
    assert isinstance(config.estimator, GRPO)
    assert (config.estimator.ddof, config.estimator.statistics) == (0, "rows")
    assert (config.rollout.num_tasks, config.rollout.group_size) == (3, 8)
    assert run(estimator=DAPO()).loss.clip_high == 0.28


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_config_is_complete_and_reads_back_as_itself(name: str) -> None:
    config = run(protocol="verl-agent", estimator={"name": name})
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_a_command_line_override_counts_as_written(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('protocol = "verl-agent"\n[estimator]\nname = "gigpo"\n')
    config = load_config(file, ("rollout.max_steps=7", "estimator.name=hgpo"))
    assert (config.rollout.max_steps, config.num_iterations) == (7, 160)
    assert config.estimator.name == "hgpo"


def test_groups_that_can_teach_nothing_are_refused_by_field() -> None:
    with pytest.raises(ValueError, match=r"rollout\.group_size"):
        run(rollout={"group_size": 1})
    with pytest.raises(ValueError, match=r"rollout\.max_rounds"):
        run(rollout={"group_size": 1, "max_rounds": 2}, estimator={"name": "ppo"})
    assert run(rollout={"group_size": 1}, estimator={"name": "ppo"}).rollout.group_size == 1


def test_departures_name_what_was_overridden() -> None:
    config = run(estimator={"name": "dapo"}, loss={"clip_high": 0.2})
    assert departures(config) == [("loss.clip_high", 0.28, 0.2)]
    assert departures(run(protocol="verl-agent", seed=3)) == []
    assert departures(run()) == []


def test_the_table_in_the_docs_is_made_from_the_code() -> None:
    text = DOCS.read_text()
    assert BEGIN in text
    assert "| `estimator.statistics` | episodes | rows |" in table()
    assert with_table(text) == text, "run: python scripts/protocol_table.py"
