"""How rows go through the model in an update: padded as they come, by length, or packed.

    python benchmarks/update.py [--iterations 2] [--repeats 3]

Collects the demo's rows (configs/grpo_demo.toml), then takes the gradient of the same minibatches
in each layout, in turn, and prints seconds of CPU time. The gradients are equal to rounding.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sero_core.batch import Batch, build_batch
from sero_core.config import load_config
from sero_core.forward import Passes
from sero_core.policy import Policy
from sero_core.policy_gradient import accumulate_policy_gradient
from sero_core.rows import policy_rows
from sero_core.seeds import derive_seed
from sero_core.setup import build_trainer, training_sampling
from sero_core.train import sample_tasks

CONFIG = Path(__file__).parents[1] / "configs" / "grpo_demo.toml"
HEAD_TOKENS = 512


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows in the order given, padded to the longest of each pass: what bucketing replaces."""

    max_tokens: int
    is_packed: bool = False
    head_tokens: int = HEAD_TOKENS

    def groups(self, lengths: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
        longest = max((lengths[row] for row in rows), default=1)
        size = max(1, self.max_tokens // longest)
        return [list(rows[start : start + size]) for start in range(0, len(rows), size)]

    lay_out = Passes.lay_out


def variants() -> dict[str, Passes | InOrder]:
    budgets = (1024, 2048, 4096, 12_000)
    packed = budgets[:3]  # a dense mask over 12,000 x 12,000 tokens is minutes on a CPU
    return (
        {f"padded {tokens}": InOrder(tokens) for tokens in budgets}
        | {f"bucketed {tokens}": Passes(tokens, False, HEAD_TOKENS) for tokens in budgets}
        | {f"packed {tokens}": Passes(tokens, True, HEAD_TOKENS) for tokens in packed}
    )


def collect(iterations: int) -> tuple[Policy, Batch]:
    """Rows of the demo's first iterations; advantages are +-1, so that no row is skipped."""
    config = load_config(CONFIG, ("evaluation.num_tasks=1",))
    trainer = build_trainer(config)
    rows = []
    for iteration in range(1, iterations + 1):
        groups = trainer.collector.collect(
            sample_tasks(trainer.tasks, config.seed, iteration, config.rollout.num_tasks),
            group_size=config.rollout.group_size,
            sampling=training_sampling(config),
            seed=derive_seed(config.seed, "collect", iteration),
            prefix=f"i{iteration}",
        )
        ones = [[[1.0] * len(e.steps) for e in group.episodes] for group in groups]
        rows += policy_rows(groups, ones, config.sampling.temperature)
    trainer.close()
    return trainer.policy, build_batch(rows)


def seconds(policy: Policy, batch: Batch, rows: Sequence[int], passes: Passes | InOrder) -> float:
    loss = load_config(CONFIG).loss
    policy.model.zero_grad()
    count = float(sum(len(batch.masks[row]) for row in rows))
    started = time.process_time()
    accumulate_policy_gradient(policy, batch, rows, count, loss, passes, ("policy",))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    policy, batch = collect(arguments.iterations)
    rows = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).tolist()[:256]
    lengths = [len(batch.input_ids[row]) for row in rows]
    print(
        f"{len(rows)} rows of {min(lengths)} to {max(lengths)} tokens, {sum(lengths)} in all; "
        f"CPU seconds of one minibatch, best of {arguments.repeats}"
    )
    best: dict[str, float] = {}
    for _ in range(arguments.repeats):
        for name, passes in variants().items():
            best[name] = min(best.get(name, math.inf), seconds(policy, batch, rows, passes))
    all_lengths = [len(ids) for ids in batch.input_ids]
    for name, passes in variants().items():
        groups = passes.groups(all_lengths, rows)
        fed = sum(
            sum(all_lengths[row] for row in group)
            if passes.is_packed
            else len(group) * max(all_lengths[row] for row in group)
            for group in groups
        )
        print(f"{name:<16} {best[name]:6.2f} s  {len(groups):>4} passes  {fed:>7} tokens fed")


if __name__ == "__main__":
    main()
