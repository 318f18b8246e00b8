"""KL to the initial policy as a penalty on rewards, before any estimator sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from sero_core.forward import Passes, score_rows
from sero_core.losses.kl import kl_estimate
from sero_core.policy import Policy
from sero_core.sections import PolicyLoss
from sero_core.types import Episode, Group


def subtract_kl(
    groups: Sequence[Group],
    reference: Policy,
    loss: PolicyLoss,
    temperature: float,
    passes: Passes,
) -> tuple[list[Group], dict[str, float]]:
    """New groups in which each step's reward is less by kl_coef * sum over the answer's tokens of
    the KL estimate between the sampler's and the reference policy's log-probabilities (arXiv
    2009.01325; the tokens' penalties of one step, summed). Values only, no gradient.

    Returns train/kl, the mean estimate per token, with them; nothing for no tokens.
    """
    steps = [step for group in groups for episode in group.episodes for step in episode.steps]
    scores = score_rows(
        reference,
        [torch.tensor(step.prompt_ids + step.completion.token_ids) for step in steps],
        [len(step.prompt_ids) for step in steps],
        [temperature] * len(steps),
        passes,
    )
    estimates = [
        kl_estimate(torch.tensor(step.completion.logprobs), ref, loss.kl_estimator).double()
        for step, ref in zip(steps, scores, strict=True)
    ]
    penalties = iter([loss.kl_coef * float(values.sum()) for values in estimates])

    def charged(episode: Episode) -> Episode:
        steps = tuple(replace(s, reward=s.reward - next(penalties)) for s in episode.steps)
        return replace(episode, steps=steps)

    changed = [replace(g, episodes=tuple(charged(e) for e in g.episodes)) for g in groups]
    tokens = sum(len(values) for values in estimates)
    if tokens == 0:
        return changed, {}
    return changed, {"train/kl": sum(float(values.sum()) for values in estimates) / tokens}
