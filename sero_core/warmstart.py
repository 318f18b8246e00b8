"""Make the demo policy: a tokenizer and a small Qwen2 trained by imitation on half-random episodes.

The policy must be competent but noisy, so that reinforcement learning has something to sharpen.
Each demonstration is an episode in which every action is either the oracle's or a random
admissible one (`noise`), and the label is the action that was executed. All of it is seeded: same
seed, same policy on the same machine and library versions.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from sero_core.envs import make_env
from sero_core.envs.webshop.actions import OPEN_SEARCH, search
from sero_core.oracles import default_oracle
from sero_core.policy import Policy, make_policy
from sero_core.prompts import (
    ACTION_CLOSE,
    ACTION_OPEN,
    EnvName,
    PastStep,
    PromptBuilder,
    body_text,
    task_text,
)
from sero_core.sections import AlfworldEnv, PromptConfig
from sero_core.sections_webshop import EnvConfig
from sero_core.seeds import derive_seed, derived_random
from sero_core.types import Observation, Oracle, OracleError, Prefix, PrefixStep, Task

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = (ACTION_OPEN, ACTION_CLOSE)
WORDS = Regex(r"[^\S\n]?[a-zA-Z]+|[^\S\n]?\d|\n|[^\S\n]?[^\s\w]+|[^\S\n]+|.")
IDLE_ACTIONS = ("look", "inventory", "help", "examine")


class Stage(BaseModel):
    """One round of imitation. `noise` is the share of random actions among those executed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_games: int = Field(ge=1, description="Generated training games")
    noise: float = Field(ge=0, le=1, description="Share of random actions")
    labels: Literal["oracle", "executed"] = Field(
        description="Imitate what the oracle would do, or what was done, noise included"
    )


class WarmstartConfig(BaseModel):
    """The recipe of the demo policy; the defaults made the one that ships with the repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=7, ge=0)
    stages: tuple[Stage, ...] = Field(
        default=(
            Stage(num_games=4500, noise=0.3, labels="oracle"),
            Stage(num_games=4000, noise=0.2, labels="oracle"),
            Stage(num_games=500, noise=0.5, labels="executed"),
        ),
        min_length=1,
    )
    max_steps: int = Field(default=16, ge=1, description="Steps of a demonstration")
    hidden_size: int = Field(default=128, ge=16)
    num_layers: int = Field(default=4, ge=1)
    vocab_size: int = Field(default=640, ge=300, description="Tokenizer vocabulary")
    lr: float = Field(default=2e-3, gt=0)
    batch_tokens: int = Field(default=1500, ge=256, description="Padded tokens per step")
    prompt_loss: float = Field(default=0.5, ge=0, description="Weight of prompt tokens in the loss")
    num_threads: int = Field(default=1, ge=1)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One step to imitate: what was seen and the action that was executed."""

    task: str
    past: tuple[PastStep, ...]
    observation: Observation
    action: str


def collect_demonstrations(
    tasks: Sequence[Task],
    config: WarmstartConfig,
    stage: Stage,
    played: EnvConfig = AlfworldEnv(),  # noqa: B008 - frozen
) -> list[Demonstration]:
    """One half-random episode per task. The oracle is started afresh at every step."""
    env, oracle = make_env(played), default_oracle(played.name)()
    rows: list[Demonstration] = []
    for task in tasks:
        rng = derived_random(config.seed, "demonstration", task.task_id)
        observation = env.reset(task)
        goal = task_text(observation.text)
        past: list[PastStep] = []
        prefix: list[PrefixStep] = []
        while not observation.is_terminated and len(past) < config.max_steps:
            wanted = _oracle_action(oracle, Prefix(task, tuple(prefix), observation, env))
            if wanted is None:
                break
            executed = wanted
            if rng.random() < stage.noise:
                executed = _random_action(observation, rng, goal)
            label = wanted if stage.labels == "oracle" else executed
            rows.append(Demonstration(goal, tuple(past), observation, label))
            past.append(PastStep(observation.text, executed))
            prefix.append(PrefixStep(observation, executed))
            observation = env.step(executed)
    return rows


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the environment's texts; tags and chat marks are single tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def warmstart(
    games: Sequence[Sequence[Task]],
    prompt: PromptConfig,
    config: WarmstartConfig,
    report: Callable[[str], None],
    played: EnvConfig = AlfworldEnv(),  # noqa: B008 - frozen
) -> Policy:
    """Demonstrations, tokenizer, model, imitation. Returns the policy in memory.

    `games[i]` are the tasks of `config.stages[i]`; the tokenizer comes from the first stage.
    `report` gets one line every few seconds (step, loss, tokens per second).
    """
    torch.set_num_threads(config.num_threads)
    rows = collect_demonstrations(games[0], config, config.stages[0], played)
    tokenizer = train_tokenizer(_texts(rows, prompt, played.name), config.vocab_size)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(config.seed, "init"))
        model = Qwen2ForCausalLM(_architecture(config, tokenizer))
    policy = make_policy(model, tokenizer)
    imitate(policy, rows, prompt, config, report, played.name)
    for tasks, stage in zip(games[1:], config.stages[1:], strict=True):
        rows = collect_demonstrations(tasks, config, stage, played)
        imitate(policy, rows, prompt, config, report, played.name)
    return policy


def imitate(
    policy: Policy,
    rows: Sequence[Demonstration],
    prompt: PromptConfig,
    config: WarmstartConfig,
    report: Callable[[str], None],
    env: EnvName = "alfworld",
) -> None:
    """One stage: train the policy in place on these steps, with a schedule of its own."""
    builder = PromptBuilder(prompt, policy.tokenizer, env)
    encoded = [_encode(row, builder) for row in rows]
    lengths = [len(prompt_ids) + len(answer_ids) for prompt_ids, answer_ids in encoded]
    report(
        f"{len(rows)} steps of {sum(lengths) / len(lengths):.0f} tokens on average, "
        f"{max(lengths)} at most; vocabulary {len(policy.tokenizer)}"
    )
    _descend(cast(Qwen2ForCausalLM, policy.model), encoded, config, report)
    policy.model.eval()


def _oracle_action(oracle: Oracle, prefix: Prefix) -> str | None:
    """What the oracle would do; None if it gives up."""
    try:
        oracle.start(prefix)
        return oracle.act(prefix.observation)
    except OracleError:
        return None


def _random_action(observation: Observation, rng: random.Random, goal: str) -> str:
    """Any admissible action that is not idle; a search for a few words of the goal in a row."""
    action = rng.choice([a for a in observation.admissible if not a.startswith(IDLE_ACTIONS)])
    if action != OPEN_SEARCH:
        return action
    words = goal.lower().split()
    start = rng.randrange(len(words))
    return search(" ".join(words[start : start + rng.randint(1, 4)]))


def _texts(rows: Sequence[Demonstration], prompt: PromptConfig, env: EnvName) -> Iterator[str]:
    """Every tenth prompt's body and answer, without the chat template (the tokenizer is not
    born).
    """
    for row in rows[::10]:
        kept = min(prompt.history_length, len(row.past))
        yield body_text(prompt.name, row.task, row.past, kept, row.observation, env)
        yield f"user\nassistant\n{row.action}"


def _encode(row: Demonstration, builder: PromptBuilder) -> tuple[tuple[int, ...], tuple[int, ...]]:
    prompt = builder.build(row.task, row.past, row.observation)
    return prompt.ids, builder.render(row.action).token_ids


def _architecture(config: WarmstartConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen2Config:
    heads = max(2, config.hidden_size // 32)
    end, pad = (
        cast(int, tokenizer.convert_tokens_to_ids(token)) for token in ("<|im_end|>", SPECIAL[0])
    )
    return Qwen2Config(
        vocab_size=math.ceil(len(tokenizer) / 32) * 32,
        hidden_size=config.hidden_size,
        intermediate_size=3 * config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )


def _descend(
    model: Qwen2ForCausalLM,
    rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    config: WarmstartConfig,
    report: Callable[[str], None],
) -> None:
    """AdamW with warm-up and cosine decay over length-bucketed batches in a seeded order."""
    batches = _batches(rows, config, derived_random(config.seed, "order", len(rows)))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _schedule(step, len(batches))
    )
    model.train()
    started = last = time.monotonic()
    tokens = 0
    for step, batch in enumerate(batches):
        loss, answer_loss, num_tokens = _loss(model, batch, config.prompt_loss)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        tokens += num_tokens
        if time.monotonic() - last > 10 or step + 1 == len(batches):
            last = time.monotonic()
            report(
                f"step {step + 1}/{len(batches)} answer loss {answer_loss:.3f} "
                f"{tokens / (last - started):.0f} tokens/s"
            )


def _batches(
    rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    config: WarmstartConfig,
    rng: random.Random,
) -> list[list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    order = sorted(rows, key=lambda row: len(row[0]) + len(row[1]) + rng.random() * 24)
    batches: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = []
    longest = 0
    for row in order:
        longest = max(longest, len(row[0]) + len(row[1]))
        if not batches or longest * (len(batches[-1]) + 1) > config.batch_tokens:
            batches.append([])
            longest = len(row[0]) + len(row[1])
        batches[-1].append(row)
    rng.shuffle(batches)
    return batches


def _loss(
    model: Qwen2ForCausalLM,
    batch: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    prompt_loss: float,
) -> tuple[torch.Tensor, float, int]:
    """Weighted mean NLL: 1 on answer tokens, `prompt_loss` on prompt tokens, 0 on padding."""
    longest = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids_BL = torch.zeros((len(batch), longest), dtype=torch.long)
    weight_BL = torch.zeros((len(batch), longest))
    for i, (prompt, answer) in enumerate(batch):
        end = len(prompt) + len(answer)
        ids_BL[i, :end] = torch.tensor(prompt + answer)
        weight_BL[i, : len(prompt)] = prompt_loss
        weight_BL[i, len(prompt) : end] = 1.0
    logits_BLV = model(input_ids=ids_BL, use_cache=False).logits[:, :-1]
    nll_BL = functional.cross_entropy(logits_BLV.transpose(1, 2), ids_BL[:, 1:], reduction="none")
    weight_BL = weight_BL[:, 1:]
    is_answer_BL = weight_BL == 1.0
    answer_loss = float(nll_BL.detach()[is_answer_BL].mean())
    total = (nll_BL * weight_BL).sum() / weight_BL.sum()
    return total, answer_loss, sum(len(prompt) + len(answer) for prompt, answer in batch)


def _schedule(step: int, num_steps: int) -> float:
    warmup = min(100, num_steps // 10 + 1)
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, num_steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


def save_card(folder: Path, config: WarmstartConfig, table: Sequence[str]) -> None:
    """Write the recipe and the measured success beside the weights."""
    (folder / "warmstart.json").write_text(config.model_dump_json(indent=1) + "\n")
    lines = [
        "# Demo policy",
        "",
        "A small Qwen2 made by `sero warmstart` (seeded imitation of half-random episodes on",
        "generated games; recipe in `warmstart.json`). Success on the fixed panels of the config:",
        "",
        "```",
        *table,
        "```",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines))
