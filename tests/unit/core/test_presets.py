"""The presets of the papers' setting: what the script writes, loadable, and honest about memory."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import cast

import pytest
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from sero_core.adapter import add_adapter
from sero_core.config import load_config
from sero_core.protocol import departures, flatten
from sero_core.sections import LoraConfig
from tests.support.presets import PRESETS

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_presets.py"
MAKER = runpy.run_path(str(SCRIPT))
FILES = sorted(PRESETS.glob("*.toml"))
BASES = ("grpo", "gigpo", "hgpo", "rloo", "ppo", "sero")
ARMS = ("root-only", "uniform", "reachability", "demonstrations-only")


def test_the_files_are_what_the_script_writes(tmp_path: Path) -> None:
    MAKER["main"](tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in PRESETS.iterdir()}


def test_every_model_environment_and_method_has_one() -> None:
    methods = [*BASES, *(f"sero_{arm}" for arm in ARMS)]
    assert {path.stem for path in FILES} == {
        f"{env}_{model}_{method}"
        for env in ("alfworld", "webshop")
        for model in ("qwen2.5-1.5b", "qwen2.5-7b")
        for method in methods
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_and_its_header_says_what_it_needs(path: Path) -> None:
    config = load_config(path)
    assert departures(config) == [], "the hyperparameters are the protocol's, all of them"
    assert (config.name, config.protocol) == (path.stem, "verl-agent")
    assert config.evaluation.protocol.label == "paper 128"
    head = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    assert re.search(r"^# Hardware: .+; about \d+ GB are\s", head, re.MULTILINE)
    assert f"# Run: sero train configs/paper/{path.name} --out runs/{path.stem}\n" in head
    assert config.policy.path in head
    assert all(len(line) <= 100 for line in head.splitlines() if "# Run: " not in line)


@pytest.mark.parametrize("model", MAKER["MODELS"], ids=lambda model: model.key)
def test_parameters_are_counted_as_transformers_counts_them(model) -> None:  # noqa: ANN001
    with torch.device("meta"):
        real = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=model.vocab_size,
                hidden_size=model.hidden_size,
                intermediate_size=model.intermediate_size,
                num_hidden_layers=model.num_layers,
                num_attention_heads=model.num_heads,
                num_key_value_heads=model.num_kv_heads,
                tie_word_embeddings=model.is_tied,
            )
        )
        assert sum(p.numel() for p in real.parameters()) == model.num_parameters
        adapted = add_adapter(cast(PreTrainedModel, real), LoraConfig(rank=64), seed=0)
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert trained == model.num_adapter_parameters(64)


@pytest.mark.parametrize("env", ["alfworld", "webshop"])
@pytest.mark.parametrize("model", ["qwen2.5-1.5b", "qwen2.5-7b"])
def test_the_arms_differ_from_the_method_in_one_switch(env: str, model: str) -> None:
    def load(method: str) -> dict[str, object]:
        data = load_config(PRESETS / f"{env}_{model}_{method}.toml").model_dump(mode="json")
        return flatten({key: value for key, value in data.items() if key != "name"})

    whole = load("sero")
    changed = {
        arm: {key for key, value in load(f"sero_{arm}").items() if whole[key] != value}
        for arm in ARMS
    }
    assert changed == {
        "root-only": {"sero.horizon"},
        "uniform": {"sero.reachability.beta"},
        "reachability": set(),
        "demonstrations-only": {"sero.root.rule", "sero.root.per_group"},
    }
    plain = load_config(PRESETS / f"{env}_{model}_grpo.toml").model_dump(mode="json")
    assert {key: value for key, value in flatten(plain).items() if key not in ("name", "sero")} == {
        key: value for key, value in whole.items() if not key.startswith("sero")
    }


def test_memory_by_hand() -> None:
    """1.5 B parameters: 16 + 4 + 2 bytes each, and 64 x 2560 tokens of keys and values, twice."""
    small, _ = MAKER["MODELS"]
    world, _ = MAKER["WORLDS"]
    grpo = MAKER["METHODS"][0]
    cached = 2 * 64 * 2560 * (2 * 2 * 28 * 2 * 128)
    assert MAKER["memory"](small, world, grpo) == pytest.approx((22 * 1543714304 + cached) / 1e9)


def test_the_table_of_the_docs_is_computed() -> None:
    found = {
        cells[1].strip(): (int(cells[2]), int(cells[3]))
        for line in (SCRIPT.parents[1] / "docs" / "presets.md").read_text().splitlines()
        if re.match(r"^\| (1\.5|7)B", line) and (cells := line.split("|"))
    }
    small, large = MAKER["MODELS"]
    methods = {method.key: method for method in MAKER["METHODS"]}

    def row(model: object, method: str, *, is_lora: bool = False) -> tuple[int, int]:
        used = [
            MAKER["memory"](model, world, methods[method], is_lora=is_lora)
            for world in MAKER["WORLDS"]
        ]
        return round(used[0]), round(used[1])

    assert found == {
        "1.5B": row(small, "grpo"),
        "1.5B, HGPO (longer prompts)": row(small, "hgpo"),
        "1.5B, PPO": row(small, "ppo"),
        "7B": row(large, "grpo"),
        "7B, HGPO": row(large, "hgpo"),
        "7B, PPO": row(large, "ppo"),
        "7B, LoRA of rank 64": row(large, "grpo", is_lora=True),
        "7B, HGPO, LoRA": row(large, "hgpo", is_lora=True),
        "7B, PPO, LoRA": row(large, "ppo", is_lora=True),
    }
