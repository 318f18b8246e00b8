"""Numbers of one iteration, from its groups and branches (no tensors here)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev

from sero_core.evaluate import rates_by_seed
from sero_core.types import Branch, Evaluation, Group, Step


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Success and format of the policy's own episodes. Oracle steps never count here.

    `rollout/lost_episodes` exists where an environment worker took some with it; no other number
    counts them.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    steps = [step for episode in episodes for step in episode.steps]
    num_lost = sum(group.num_lost for group in groups)
    lost = {"rollout/lost_episodes": float(num_lost)} if num_lost else {}
    return lost | {
        "rollout/success": _mean([float(episode.is_won) for episode in episodes]),
        "rollout/reward": _mean([episode.reward for episode in episodes]),
        "rollout/steps": _mean([float(len(episode.steps)) for episode in episodes]),
        "rollout/valid": _mean([float(step.is_valid) for step in steps]),
        "rollout/admissible": _mean([float(step.is_admissible) for step in steps]),
        "rollout/truncated": _mean([float(episode.is_truncated) for episode in episodes]),
        "rollout/mixed_groups": _mean([float(_is_mixed(group)) for group in groups]),
        "rollout/tokens": float(sum(_num_tokens(step) for step in steps)),
    }


def branch_metrics(branches: Sequence[Branch]) -> dict[str, float]:
    """Branch diagnostics: success, effective depth, mean weight per depth, agreement at the root.

    `sero/nll_k<k>` is the behavior policy's mean negative log-probability per token of oracle
    action k, before the update.
    """
    metrics = {
        "sero/branches": float(len(branches)),
        "sero/branches_trained": float(sum(branch.is_trained for branch in branches)),
        "sero/restore_mismatches": float(
            sum(branch.outcome == "restore_mismatch" for branch in branches)
        ),
    }
    if not branches:
        return metrics
    weights: defaultdict[int, list[float]] = defaultdict(list)
    losses: defaultdict[int, list[float]] = defaultdict(list)
    for branch in branches:
        for step in branch.steps:
            weights[step.depth].append(step.weight)
            losses[step.depth].append(-step.action_logprob_mean)
    steps = [step for branch in branches for step in branch.steps]
    metrics |= {
        "sero/branch_success": _mean([float(branch.outcome == "won") for branch in branches]),
        "sero/effective_depth": _mean([branch.effective_depth for branch in branches]),
        "sero/branch_steps": _mean([float(len(branch.steps)) for branch in branches]),
        "sero/mean_weight": _mean([step.weight for step in steps]),
        "sero/agreement": _mean(
            [float(step.probe_action == step.action) for step in steps if step.probe_action]
        ),
    }
    for depth in sorted(weights):
        metrics[f"sero/mean_weight_k{depth}"] = _mean(weights[depth])
        metrics[f"sero/nll_k{depth}"] = _mean(losses[depth])
    return metrics


def evaluation_metrics(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Per panel: success rate `eval/<panel>`, mean of the types' rates `eval/<panel>_macro`, and
    with several seeds the standard deviation of their rates, `eval/<panel>_seed_std`.
    """
    metrics: dict[str, float] = {}
    for evaluation in evaluations:
        name = f"eval/{evaluation.panel}"
        metrics |= {
            name: next(row.rate for row in evaluation.results if row.task_type == "all"),
            f"{name}_macro": evaluation.macro_rate,
        }
        if len(rates := rates_by_seed(evaluation.outcomes)) > 1:
            metrics[f"{name}_seed_std"] = stdev(rates.values())
    return metrics


def _num_tokens(step: Step) -> int:
    return len(step.completion.token_ids)


def _is_mixed(group: Group) -> bool:
    return len({episode.is_won for episode in group.episodes}) > 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
