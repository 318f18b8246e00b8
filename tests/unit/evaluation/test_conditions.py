"""The recorded conditions change with what they name, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import torch

from sero_core.baselines import ReAct, Reflexion, ZeroShot
from sero_core.conditions import prompt_hash
from sero_core.config import load_config
from sero_core.policy import load_policy, parameters_hash, save_policy
from sero_core.prompts import PromptBuilder
from sero_core.sections import PromptConfig
from sero_core.setup import build_trainer
from sero_core.train import evaluate_panels
from tests.support.tiny import tiny_policy
from tests.support.train import TINY


def test_an_evaluation_records_its_conditions() -> None:
    config = load_config(TINY, ("evaluation.num_tasks=1", "rollout.max_steps=2"))
    trainer = build_trainer(config)
    seen, unseen = evaluate_panels(trainer, 0)
    trainer.close()
    found = seen.conditions
    assert (found.protocol, found.baseline, found.seeds) == ("fixed", "zero_shot", (1000,))
    assert (found.temperature, found.max_new_tokens, found.max_steps) == (0.4, 20, 2)
    assert found.env_version.startswith("alfworld native ")
    assert found.engine.startswith("transformers ")
    assert found.policy_hash == parameters_hash(load_policy("demo"))
    assert found.data_hash != seen.panel_hash, "one task of six was played"
    assert unseen.conditions.data_hash != found.data_hash


def test_the_policy_hash_survives_a_checkpoint_and_follows_the_weights(tmp_path: Path) -> None:
    policy = tiny_policy()
    before = parameters_hash(policy)
    policy.tokenizer.chat_template = "{{ messages[0].content }}"
    save_policy(policy, tmp_path)
    assert parameters_hash(load_policy(str(tmp_path))) == before
    with torch.no_grad():
        next(iter(policy.model.parameters()))[0, 0] += 1e-3
    assert parameters_hash(policy) != before


def test_the_prompt_hash_covers_format_history_and_examples() -> None:
    tokenizer = load_policy("demo").tokenizer

    def hash_of(prompt: PromptConfig, baseline: ZeroShot | ReAct | Reflexion) -> str:
        return prompt_hash(PromptBuilder(prompt, tokenizer), baseline.source("alfworld"))

    standard = PromptConfig()
    plain = hash_of(standard, ZeroShot())
    assert plain == hash_of(PromptConfig(max_prompt_tokens=500), ZeroShot())
    others = [
        hash_of(PromptConfig(name="terse"), ZeroShot()),
        hash_of(PromptConfig(history_length=3), ZeroShot()),
        hash_of(standard, ReAct()),
        hash_of(standard, Reflexion()),
    ]
    assert len({plain, *others}) == 5
