"""Scoring oracle branches: step by step, in padded batches, and with shared prefixes.

Run: python benchmarks/scoring.py [--config configs/sero_demo.toml] [--hidden 512 --layers 10]
One iteration of the config gives the branches. Two workloads: the oracle's action of every branch
step, and every admissible action of every branch step (rule `admissible`). For each way of scoring:
tokens that the model reads, seconds (process time on a CPU, wall time on a GPU; best of --repeats),
and the largest difference to the step-by-step log-probabilities. `engine` is what
`TransformersRuntime.score` chooses by itself. With --hidden and --layers a random model of that
size takes the place of the policy after the rollout, to see what a larger one gains.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from sero_core.config import load_config
from sero_core.engines import transformers as engine
from sero_core.engines.shared import Row, families, num_read, score_families, worthwhile
from sero_core.engines.transformers import TransformersRuntime
from sero_core.policy import Policy, make_policy
from sero_core.sections import TransformersEngine
from sero_core.setup import build_trainer, training_sampling

Ids = tuple[int, ...]
Scores = list[tuple[float, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--config", type=Path, default=Path("configs/sero_demo.toml"))
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--hidden", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=0, help="branch steps used; 0 = all")
    options = parser.parse_args()

    config = load_config(options.config, tuple(options.overrides))
    trainer = build_trainer(config)
    assert trainer.brancher is not None, "the config needs a [sero] section"
    groups = trainer.collector.collect(
        trainer.tasks[: config.rollout.num_tasks],
        group_size=config.rollout.group_size,
        sampling=training_sampling(config),
        seed=1,
        prefix="i1",
    )
    branches = trainer.brancher.branch(groups, seed=1, iteration=1)
    policy = trainer.policy
    if options.hidden:
        policy = random_policy(policy, options.hidden, options.layers)
    size = sum(parameter.numel() for parameter in policy.model.parameters())
    print(f"{policy.device}, {size / 1e6:.1f} M parameters, {torch.get_num_threads()} thread(s)")
    builder = trainer.brancher.builder
    steps = [step for branch in branches for step in branch.steps]
    steps = steps[: options.max_steps or len(steps)]
    report(
        f"the oracle's action of {len(steps)} branch steps",
        policy,
        [step.prompt_ids for step in steps],
        [step.token_ids for step in steps],
        options.repeats,
    )
    pairs = [
        (step.prompt_ids, builder.render(action).token_ids)
        for step in steps
        for action in step.observation.admissible
    ]
    report(
        f"all {len(pairs)} admissible actions of these states",
        policy,
        [prompt for prompt, _ in pairs],
        [completion for _, completion in pairs],
        options.repeats,
    )
    trainer.close()


def random_policy(policy: Policy, hidden: int, layers: int) -> Policy:
    """A Qwen2 of another size with the same tokenizer."""
    config = Qwen2Config(
        vocab_size=policy.model.config.vocab_size,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 128),
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=policy.model.config.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    return make_policy(Qwen2ForCausalLM(config).to(policy.device), policy.tokenizer)


def report(
    title: str, policy: Policy, prompts: Sequence[Ids], completions: Sequence[Ids], repeats: int
) -> None:
    """One workload, four ways."""
    runtime = TransformersRuntime(TransformersEngine(), policy)
    rows = [Row(p + c, len(c)) for p, c in zip(prompts, completions, strict=True)]
    found = families(rows)
    lone = [m for family in found if not family.num_shared for m in family.members]
    total = sum(len(row.ids) for row in rows)
    chosen = worthwhile(rows, found)
    left = total - sum(len(rows[m].ids) for family in chosen for m in family.members)

    def alone(numbers: Sequence[int]) -> Scores:
        return runtime._score_alone(
            [prompts[n] for n in numbers], [completions[n] for n in numbers], 1.0
        )

    def shared() -> Scores:
        scores = score_families(
            policy,
            rows,
            [family for family in found if family.num_shared],
            temperature=1.0,
            forward_tokens=engine.FORWARD_TOKENS[policy.device.type],
            head_tokens=engine.HEAD_TOKENS,
        )
        scores |= dict(zip(lone, alone(lone), strict=True))
        return [scores[n] for n in range(len(rows))]

    ways: dict[str, tuple[int, Callable[[], Scores]]] = {
        "step by step": (total, lambda: [alone([n])[0] for n in range(len(rows))]),
        "batched": (total, lambda: alone(range(len(rows)))),
        "shared": (sum(num_read(rows, family) for family in found), shared),
        "engine": (
            left + sum(num_read(rows, family) for family in chosen),
            lambda: runtime.score(prompts, completions),
        ),
    }
    print(f"\n{title}\n{'way':<14}{'tokens':>10}{'seconds':>10}{'largest difference':>22}")
    reference: Scores | None = None
    for name, (tokens, score) in ways.items():
        seconds, scores = timed(score, policy, repeats if name != "step by step" else 1)
        reference = scores if reference is None else reference
        worst = max(
            abs(a - b)
            for left_row, right_row in zip(reference, scores, strict=True)
            for a, b in zip(left_row, right_row, strict=True)
        )
        print(f"{name:<14}{tokens:>10}{seconds:>10.2f}{worst:>22.1e}")


def timed(score: Callable[[], Scores], policy: Policy, repeats: int) -> tuple[float, Scores]:
    """Best of several runs."""
    is_gpu = policy.device.type == "cuda"
    clock = time.perf_counter if is_gpu else time.process_time
    best, scores = float("inf"), []
    for _ in range(repeats):
        started = clock()
        scores = score()
        if is_gpu:
            torch.cuda.synchronize()
        best = min(best, clock() - started)
    return best, scores


if __name__ == "__main__":
    main()
