"""Numbers of one iteration, from its groups and branches (no tensors here)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev

from sero_core.evaluate import rates_by_seed
from sero_core.prompts import same_action
from sero_core.types import Branch, Group, Step
from sero_core.types_evaluation import Evaluation


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
        "rollout/score_mean": _mean([episode.score for episode in episodes]),
        "rollout/reward": _mean([episode.reward for episode in episodes]),
        "rollout/steps": _mean([float(len(episode.steps)) for episode in episodes]),
        "rollout/valid": _mean([float(step.is_valid) for step in steps]),
        "rollout/admissible": _mean([float(step.is_admissible) for step in steps]),
        "rollout/truncated": _mean([float(episode.is_truncated) for episode in episodes]),
        "rollout/mixed_groups": _mean([float(_is_mixed(group)) for group in groups]),
        "rollout/tokens": float(sum(_num_tokens(step) for step in steps)),
    }


def branch_metrics(branches: Sequence[Branch]) -> dict[str, float]:
    """Branch diagnostics: outcomes, weights and the behavior policy's view of the oracle's actions.

    `sero/mean_weight_k<k>` and `sero/nll_k<k>` are means over the branches that reach depth k, of
    w_k and of the mean negative log-probability per token of oracle action k, before the update.
    `sero/effective_depth` is the mean of sum_k w_k. `sero/agreement` (with probe) is the share of
    branch steps where the policy's greedy action is the oracle's. `sero/replaced_thoughts` counts
    steps whose thought was not usable. `sero/mean_loss_weight` exists in control studies.
    """
    steps = [step for branch in branches for step in branch.steps]
    metrics = {
        "sero/branches": float(len(branches)),
        "sero/branches_trained": float(sum(branch.is_trained for branch in branches)),
        "sero/restore_mismatches": float(_count(branches, "restore_mismatch")),
        "sero/oracle_errors": float(_count(branches, "oracle_error")),
        "sero/replaced_thoughts": float(sum(step.thought == "replaced" for step in steps)),
    }
    if not branches:
        return metrics
    weights: defaultdict[int, list[float]] = defaultdict(list)
    losses: defaultdict[int, list[float]] = defaultdict(list)
    for step in steps:
        weights[step.depth].append(step.weight)
        losses[step.depth].append(-step.action_logprob_mean)
    metrics |= {
        "sero/branch_success": _mean([float(branch.outcome == "won") for branch in branches]),
        "sero/effective_depth": _mean([branch.effective_depth for branch in branches]),
        "sero/branch_steps": _mean([float(len(branch.steps)) for branch in branches]),
        "sero/mean_weight": _mean([step.weight for step in steps]),
    }
    probed = [step for step in steps if step.probe_action is not None]
    if probed:
        agreeing = [same_action(step.probe_action or "", step.action) for step in probed]
        metrics["sero/agreement"] = _mean([float(agrees) for agrees in agreeing])
    if any(branch.control for branch in branches):
        trained = [s.weight if s.loss_weight is None else s.loss_weight for s in steps]
        metrics["sero/mean_loss_weight"] = _mean(trained)
    for depth in sorted(weights):
        metrics[f"sero/mean_weight_k{depth}"] = _mean(weights[depth])
        metrics[f"sero/nll_k{depth}"] = _mean(losses[depth])
    return metrics


def branch_shares(
    groups: Sequence[Group], branches: Sequence[Branch], seconds: dict[str, float]
) -> dict[str, float]:
    """What branches cost of an iteration. `time/branch_share`: seconds of branching and of the
    oracle's update, of all but evaluation. `sero/token_share`: tokens (prompt and answer) of the
    oracle rows that are trained on, of all rows."""
    policy = sum(
        len(step.prompt_ids) + _num_tokens(step)
        for group in groups
        for episode in group.episodes
        for step in episode.steps
    )
    oracle = sum(
        len(step.prompt_ids) + len(step.token_ids)
        for branch in branches
        if branch.is_trained
        for step in branch.steps
    )
    spent = seconds.get("time/branch_s", 0.0) + seconds.get("time/update_oracle_s", 0.0)
    total = seconds.get("time/iteration_s", 0.0) - seconds.get("time/eval_s", 0.0)
    return {
        "time/branch_share": spent / total if total > 0 else 0.0,
        "sero/token_share": oracle / (policy + oracle) if policy + oracle else 0.0,
    }


def evaluation_metrics(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Per panel: success rate `eval/<panel>`, mean of the types' rates `eval/<panel>_macro`, mean
    dense score `eval/<panel>_score` (the rate where there is none), and with several seeds the
    standard deviation of their rates, `eval/<panel>_seed_std`.
    """
    metrics: dict[str, float] = {}
    for evaluation in evaluations:
        name = f"eval/{evaluation.panel}"
        whole = next(row for row in evaluation.results if row.task_type == "all")
        metrics |= {
            name: whole.rate,
            f"{name}_macro": evaluation.macro_rate,
            f"{name}_score": whole.mean_score,
        }
        if len(rates := rates_by_seed(evaluation.outcomes)) > 1:
            metrics[f"{name}_seed_std"] = stdev(rates.values())
    return metrics


def _count(branches: Sequence[Branch], outcome: str) -> int:
    return sum(branch.outcome == outcome for branch in branches)


def _num_tokens(step: Step) -> int:
    return len(step.completion.token_ids)


def _is_mixed(group: Group) -> bool:
    return len({episode.is_won for episode in group.episodes}) > 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
