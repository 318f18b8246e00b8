"""Models of Qwen2.5's architecture with random weights, small enough for two iterations on a CPU.

The ratio of query to key heads, tied or separate embeddings and biases are those of the published
`config.json`; layers and sizes are not. The tokenizer is the demo policy's.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from sero_core.policy import DEMO_POLICY, load_tokenizer, make_policy, save_policy

PRESETS = Path(__file__).parents[2] / "configs" / "paper"
SHAPES = {"qwen2.5-1.5b": (6, 1, True), "qwen2.5-7b": (7, 1, False)}
"""Query heads, key heads, tied embeddings: 12:2 and 28:4 in the published models."""
HEAD_SIZE = 8


def save_small_model(key: str, folder: Path) -> None:
    """The scaled-down model of a preset's `key`."""
    num_heads, num_kv_heads, is_tied = SHAPES[key]
    tokenizer = load_tokenizer(DEMO_POLICY)
    config = Qwen2Config(
        vocab_size=640,
        hidden_size=num_heads * HEAD_SIZE,
        intermediate_size=6 * num_heads * HEAD_SIZE,
        num_hidden_layers=2,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=32_768,
        tie_word_embeddings=is_tied,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
    save_policy(make_policy(cast(PreTrainedModel, model), tokenizer), folder)


def scaled_down(path: Path, model: Path) -> tuple[str, ...]:
    """Overrides that make a preset small: model, data, and how much is rolled out; no method."""
    is_webshop, is_sero = path.name.startswith("webshop"), "_sero" in path.name
    group = 1 if "_ppo" in path.name else 2
    max_steps = 6 if is_sero else 2  # an oracle needs room to win
    data = {
        True: ("env.catalogue={num_products=60}",),
        False: (
            "env.games={num_train=18,num_valid_seen=12,num_valid_unseen=6}",
            'env.task_types=["pick_and_place_simple"]',
        ),
    }
    return (
        f"policy.path={model}",
        "policy.dtype=float32",
        "env.data_root=",
        *data[is_webshop],
        "engine.batch_size=16",
        "prompt.max_prompt_tokens=1500",
        "sampling.max_new_tokens=5",
        "num_iterations=2",
        f"rollout.num_tasks={1 if is_sero else 2}",
        f"rollout.group_size={group}",
        f"rollout.max_steps={max_steps}",
        "evaluation.every=0",
        "evaluation.protocol.num_draws=2",
        "evaluation.num_tasks=2",
    )
