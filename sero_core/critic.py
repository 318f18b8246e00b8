"""PPO's critic: a second model of the policy's architecture with a value head and its own AdamW.

Values are taken where the model has read everything up to, but not including, what it values: per
token of an answer (`level = "tokens"`), or once per step, after the prompt (`"steps"`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sero_core.credit.statistics import FloatArray
from sero_core.credit.table import EpisodeArrays
from sero_core.distributed import sum_over_ranks
from sero_core.forward import Passes, hidden_states, training_passes
from sero_core.losses import LossPart
from sero_core.optimizer_steps import make_optimizer, minibatches, optimizer_step, zero_grad
from sero_core.policy import Policy, open_policy
from sero_core.sections import OptimizerConfig
from sero_core.seeds import derive_seed
from sero_core.types import Group, SeroError

if TYPE_CHECKING:
    from sero_core.credit.base import Values
    from sero_core.credit.ppo import CriticConfig
    from sero_core.sections import PolicyConfig

CRITIC_OPTIMIZER = "critic_optimizer"
CRITIC_FOLDER = "critic"
WEIGHTS = "critic.safetensors"


def value_loss(
    values_N: torch.Tensor, old_N: torch.Tensor, returns_N: torch.Tensor, *, value_clip: float
) -> LossPart:
    """Clipped value loss (arXiv 1707.06347 as in OpenAI's baselines), summed over (N,).

    1/2 max((V - R)^2, (old + clamp(V - old, -clip, clip) - R)^2): a value earns nothing by moving
    more than `value_clip` from what was predicted before the update. Metrics: `clipped`, entries
    where the clipped term is the larger one.
    """
    moved_N = values_N - old_N
    clipped_N = old_N + torch.clamp(moved_N, -value_clip, value_clip)
    plain_N, bounded_N = (values_N - returns_N) ** 2, (clipped_N - returns_N) ** 2
    is_clipped_N = (moved_N.detach().abs() > value_clip) & (bounded_N > plain_N)
    loss_N = 0.5 * torch.maximum(plain_N, bounded_N)
    return LossPart(loss_N.sum(), float(len(loss_N)), {"clipped": float(is_clipped_N.sum())})


@dataclass(frozen=True, slots=True)
class Critic:
    """`model.head` is the value head (H -> 1); the output projection is gone. `optimizer` and the
    trained parameters of `model` are its only state."""

    model: Policy
    optimizer: torch.optim.AdamW
    config: CriticConfig
    level: Literal["tokens", "steps"]
    passes: Passes

    @torch.no_grad()
    def predict(self, groups: Sequence[Group]) -> Values:
        """Values of every step, `[group][episode]`: (T,), or one array (L_t,) per step's answer.

        Errors: `SeroError` for values that are not finite.
        """
        input_ids, prompt_lens = self._rows(groups)
        rows: list[FloatArray] = [np.zeros(0)] * len(input_ids)
        for chosen in self._groups(input_ids, range(len(input_ids))):
            values_N = self._values(input_ids, prompt_lens, chosen).double().cpu()
            lengths = [len(input_ids[row]) - prompt_lens[row] for row in chosen]
            for row, part in zip(chosen, values_N.split(lengths), strict=True):
                rows[row] = part.numpy()
        if not all(np.isfinite(row).all() for row in rows):
            raise SeroError("the critic's values are not finite")
        return self._layout(groups, rows)

    def update(
        self, groups: Sequence[Group], values: Values, returns: Values, seed: int
    ) -> dict[str, float]:
        """One pass over all rows in minibatches; the mean of `value_loss` over tokens or steps.

        `values` are `predict`'s from before the update, `returns` the estimator's targets. Returns
        critic/loss, critic/clip_fraction, critic/grad_norm (mean, before clipping), and of the
        values before the update critic/explained_variance, critic/value_mean, critic/return_mean.
        """
        input_ids, prompt_lens = self._rows(groups)
        old, targets = _flat_rows(values), _flat_rows(returns)
        totals = {"loss": 0.0, "clipped": 0.0, "count": 0.0}
        norms: list[float] = []
        for rows in minibatches(
            len(input_ids), self.config.minibatch_rows, np.random.default_rng(seed)
        ):
            (count,) = sum_over_ranks([float(sum(len(old[row]) for row in rows))])
            zero_grad(self.optimizer)
            for chosen in self._groups(input_ids, rows):
                values_N = self._values(input_ids, prompt_lens, chosen)
                part = value_loss(
                    values_N,
                    _tensor(old, chosen, values_N.device),
                    _tensor(targets, chosen, values_N.device),
                    value_clip=self.config.value_clip,
                )
                (part.sum / count).backward()
                totals["loss"] += float(part.sum.detach())
                totals["clipped"] += part.metrics["clipped"]
                totals["count"] += part.count
            norms.append(optimizer_step(self.model, self.optimizer, self.config.max_grad_norm))
        if not totals["count"]:
            return {}
        return {
            "critic/loss": totals["loss"] / totals["count"],
            "critic/clip_fraction": totals["clipped"] / totals["count"],
            "critic/grad_norm": float(np.mean(norms)),
        } | _fit(np.concatenate(old), np.concatenate(targets))

    def save(self, folder: Path) -> None:
        """Write the trained parameters; the optimizer is saved with the others."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.model.trained}
        save_file(tensors, folder / WEIGHTS)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Errors: `SeroError` if it is not there, or of another model."""
        if not (folder / WEIGHTS).is_file():
            raise SeroError(f"{folder}: expected {WEIGHTS}, the critic of a PPO run")
        tensors = load_file(folder / WEIGHTS)
        trained = dict(self.model.trained)
        differing = sorted(tensors.keys() ^ trained.keys())
        differing += [
            n for n in trained.keys() & tensors.keys() if trained[n].shape != tensors[n].shape
        ]
        if differing:
            raise SeroError(f"critic in {folder} is of another model: {differing[:3]}")
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[name])

    def _rows(self, groups: Sequence[Group]) -> tuple[list[torch.Tensor], list[int]]:
        """Row by row the ids that are read and how many of them are the prompt. One value belongs
        to each id after it: all of an answer, or its first, which stands for the step."""
        steps = [step for group in groups for episode in group.episodes for step in episode.steps]
        kept = 1 if self.level == "steps" else None
        ids = [torch.tensor(s.prompt_ids + s.completion.token_ids[:kept]) for s in steps]
        return ids, [len(step.prompt_ids) for step in steps]

    def _groups(self, input_ids: Sequence[torch.Tensor], rows: Sequence[int]) -> list[list[int]]:
        return self.passes.groups([len(ids) for ids in input_ids], rows)

    def _values(
        self, input_ids: Sequence[torch.Tensor], prompt_lens: Sequence[int], rows: Sequence[int]
    ) -> torch.Tensor:
        """Values (N,) float32 before each answer token of these rows."""
        laid_out = self.passes.lay_out(
            [input_ids[row] for row in rows], [prompt_lens[row] for row in rows], self.model.device
        )
        return self.model.head(hidden_states(self.model, laid_out))[:, 0]

    def _layout(self, groups: Sequence[Group], rows: Sequence[FloatArray]) -> Values:
        remaining = iter(rows)

        def episode(length: int) -> EpisodeArrays:
            parts = [next(remaining) for _ in range(length)]
            return np.concatenate(parts) if self.level == "steps" else parts

        return [[episode(len(e.steps)) for e in group.episodes] for group in groups]


def make_critic(
    config: CriticConfig,
    level: Literal["tokens", "steps"],
    policy: PolicyConfig,
    optim: OptimizerConfig,
    seed: int,
) -> Critic:
    """A critic that starts from the policy folder's weights, with a value head of zeros.

    It is trained like the policy (all weights, or an adapter of its own) and goes through the same
    passes (`optim`); zeros as head mean values of exactly 0 before the first update, whatever the
    model. Errors: those of `open_policy`.
    """
    model = open_policy(policy, None, derive_seed(seed, "critic"))
    head = nn.Linear(cast(nn.Linear, model.head).in_features, 1, device=model.device).eval()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.model.set_output_embeddings(head)
    settings = OptimizerConfig(lr=config.lr, weight_decay=config.weight_decay)
    passes = training_passes(model, optim)
    return Critic(model, make_optimizer(model, settings), config, level, passes)


def _fit(values: FloatArray, returns: FloatArray) -> dict[str, float]:
    spread = float(returns.var())
    explained = 1.0 - float((returns - values).var()) / spread if spread > 0 else 0.0
    return {
        "critic/explained_variance": explained,
        "critic/value_mean": float(values.mean()),
        "critic/return_mean": float(returns.mean()),
    }


def _flat_rows(nested: Values) -> list[FloatArray]:
    """One array per row: its answer's tokens, or its single number."""
    return [np.atleast_1d(row) for group in nested for episode in group for row in episode]


def _tensor(
    values: Sequence[FloatArray], rows: Sequence[int], device: torch.device
) -> torch.Tensor:
    flat = np.concatenate([values[row] for row in rows])
    return torch.tensor(flat, dtype=torch.float32, device=device)
