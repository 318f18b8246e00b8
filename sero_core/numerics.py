"""The numbers of one update: what was learnt, and whether the arithmetic can be trusted.

docs/numerics.md says what each number should be and what it means when it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sero_core.batch import Batch
from sero_core.distributed import max_over_ranks, sum_over_ranks
from sero_core.policy_gradient import Totals

if TYPE_CHECKING:
    from sero_core.config import PolicyLoss


class Panel:
    """Collects the totals of every optimiser step on policy rows."""

    def __init__(self, batch: Batch) -> None:
        sizes = (len(mask) for mask in batch.masks)
        kept = (int(mask.sum()) for mask in batch.masks)
        self._answer_tokens, self._kept_tokens = float(sum(sizes)), float(sum(kept))
        self._totals, self._first = Totals(), Totals()
        self._count = self._tokens = 0.0
        self._step_norms: list[float] = []
        self.norms: dict[str, float] = {}
        """Gradient norm of each term of the loss alone; empty where the surrogate is the only."""

    def step(
        self, totals: Totals, *, count: float, tokens: float, norm: float, is_first: bool
    ) -> None:
        """Add one minibatch: its denominator, tokens over all ranks, and gradient norm."""
        self._totals.merge(totals)
        self._count += count
        self._tokens += tokens
        self._step_norms.append(norm)
        if is_first:
            self._first.merge(totals)
            self.norms = self.norms or {"policy": norm}

    def metrics(self, loss: PolicyLoss, *, lr: float) -> dict[str, float]:
        """All `train/*` and `numerics/*` numbers of the policy rows, over all ranks.

        A mean over tokens that were never computed (every advantage was 0) is left out.
        """
        total, first = _over_ranks(self._totals), _over_ranks(self._first)
        answer, kept = sum_over_ranks([self._answer_tokens, self._kept_tokens])
        tokens = max(self._tokens, 1.0)
        norms = self._step_norms
        metrics = {
            "train/loss": total.sums["loss"] / max(self._count, 1.0),
            "train/clip_fraction": total.sums["clipped"] / tokens,
            "train/grad_norm": sum(norms) / len(norms) if norms else 0.0,
            "train/entropy": total.sums["entropy"] / max(total.sums["computed"], 1.0),
            "train/tokens": kept,
            "train/lr": lr,
            "numerics/masked_tokens": answer - kept,
            "numerics/masked_grad_max": total.maxima["masked_grad"],
        }
        if "kl" in total.sums:
            metrics["train/kl"] = total.sums["kl"] / tokens
        if total.sums["computed"]:
            metrics["numerics/outside_clip"] = total.sums["outside"] / total.sums["computed"]
        if first.sums["computed"]:
            computed = first.sums["computed"]
            metrics |= {
                "numerics/ratio_first_max": first.maxima["ratio_off"],
                "numerics/ratio_first_mean": first.sums["ratio"] / computed,
                "numerics/outside_clip_first": first.sums["outside"] / computed,
            }
            if loss.old_logprobs == "engine":
                metrics |= {
                    "numerics/engine_gap_mean": first.sums["gap"] / computed,
                    "numerics/engine_gap_max": first.maxima["gap"],
                }
        return metrics | {f"numerics/grad_norm_{term}": norm for term, norm in self.norms.items()}


def _over_ranks(totals: Totals) -> Totals:
    """Sums and maxima of all ranks; a rank without rows has none of its own."""
    names = ("loss", "entropy", "clipped", "outside", "ratio", "gap", "computed", "kl")
    peaks = ("ratio_off", "gap", "masked_grad")
    sums = sum_over_ranks([totals.sums.get(name, 0.0) for name in names])
    (has_kl,) = max_over_ranks([float("kl" in totals.sums)])
    maxima = max_over_ranks([totals.maxima.get(name, 0.0) for name in peaks])
    result = Totals(dict(zip(names, sums, strict=True)), dict(zip(peaks, maxima, strict=True)))
    if not has_kl:
        del result.sums["kl"]
    return result
