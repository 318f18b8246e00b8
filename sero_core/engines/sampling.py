"""Counter-based sampling: a token depends on its row's seed, its index and the row's logits only.

Neither the order of the batch nor its composition enters, so an episode can be reproduced alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def seed_words(seeds: Sequence[int]) -> NDArray[np.uint64]:
    """One 64-bit word per seed, well mixed; any integer is a seed (modulo 2**64)."""
    return _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64) + _GOLDEN)


def uniforms(words: NDArray[np.uint64], index: int) -> NDArray[np.float64]:
    """One uniform number in (0, 1) per row for token `index` (splitmix64 of seed and counter)."""
    with np.errstate(over="ignore"):
        bits = _mix(words + np.uint64(index + 1) * _GOLDEN) >> np.uint64(32)
    return (bits.astype(np.float64) + 0.5) * 2.0**-32


def choose(
    logits_BV: torch.Tensor, temperature: float, uniform_B: NDArray[np.float64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens (B,) and their log-probabilities (B,), float32.

    Temperature 0 takes the argmax and reports log-probabilities at temperature 1. Otherwise the
    inverse of the cumulative distribution of softmax(logits / temperature) is taken at `uniform_B`,
    in float64, so that a token of probability 0 is never chosen.
    """
    is_greedy = temperature == 0.0
    scaled_BV = logits_BV.float() if is_greedy else logits_BV.float() / temperature
    logprobs_BV = torch.log_softmax(scaled_BV, dim=-1)
    if is_greedy:
        token_B = logprobs_BV.argmax(dim=-1)
    else:
        total_BV = logprobs_BV.exp().double().cumsum(dim=-1)
        level_B1 = torch.from_numpy(uniform_B).to(total_BV.device)[:, None] * total_BV[:, -1:]
        token_B = torch.searchsorted(total_BV, level_B1, right=True)[:, 0]
    return token_B, logprobs_BV.gather(1, token_B[:, None])[:, 0]


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * _MIX_1
        words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))
