"""The named configs of `configs/`: what they share, and WebShop's published setting by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from sero_core.config import load_config
from sero_core.protocol import departures, flatten

CONFIGS = Path(__file__).parents[3] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.toml"))


def fields(name: str) -> dict[str, object]:
    return flatten(load_config(CONFIGS / f"{name}.toml").model_dump(mode="json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_named_as_its_file_and_says_what_it_is(name: str) -> None:
    path = CONFIGS / f"{name}.toml"
    assert load_config(path).name == name
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sero_")])
def test_sero_differs_from_grpo_by_its_section_only(name: str) -> None:
    """So that comparing the two compares SERO with its base and nothing else."""
    base = fields(name.replace("sero_", "grpo_", 1))
    mine = fields(name)
    assert base.pop("sero") is None
    assert {key for key in mine if key not in base} == {k for k in mine if k.startswith("sero.")}
    assert {key for key in base if base[key] != mine[key]} == {"name"}


@pytest.mark.parametrize("name", ["grpo_webshop", "gigpo_webshop", "sero_webshop"])
def test_the_published_setting_of_webshop(name: str) -> None:
    """docs/methods.md: verl-agent's scripts, WebShop column."""
    config = load_config(CONFIGS / f"{name}.toml")
    assert departures(config) == []
    assert (config.rollout.num_tasks, config.rollout.group_size) == (16, 8)
    assert (config.rollout.max_steps, config.rollout.success_reward) == (15, 10.0)
    assert (config.prompt.name, config.prompt.history_length) == ("standard", 2)
    assert (config.prompt.max_prompt_tokens, config.sampling.max_new_tokens) == (4096, 512)
    assert config.optimizer.minibatch_rows == 64
    assert config.evaluation.temperature == 0.4
    if config.sero is not None:
        assert config.sero.oracle.name == "webshop"
        assert config.sero.max_oracle_steps == 10
