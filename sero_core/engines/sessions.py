"""The state of one generation batch: keys, values and lengths of its rows.

Two sessions with the same three methods. `WrittenSession` stores keys and values in place and runs
`sero_core/forward.py`; `LibrarySession` runs any transformers model with a dynamic cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from transformers import DynamicCache

from sero_core.forward import hidden_at, next_hidden, supports
from sero_core.policy import Policy, PolicyError

PREFILL_TOKENS = {"cpu": 4096, "cuda": 65_536}
"""Padded tokens per forward pass of a prefill; small enough for a CPU's cache."""


class Session(Protocol):
    """Rows being written. All hidden states are those of the last token of each row."""

    def start(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Read the prompts, sorted by length; returns hidden states (B, H)."""
        ...

    def select(self, rows: torch.Tensor) -> None:
        """Continue with these rows only, in this order; a row may be named more than once."""
        ...

    def advance(self, token_B: torch.Tensor) -> torch.Tensor:
        """Append one token to every row; returns hidden states (B, H)."""
        ...


def open_session(policy: Policy, max_new_tokens: int) -> Session:
    """The fastest session for this model. Errors: `PolicyError` for windowed attention."""
    if supports(policy.model):
        return WrittenSession(policy, max_new_tokens)
    return LibrarySession(policy)


class WrittenSession:
    """Keys and values of a row lie at its own positions: no holes, whatever its length."""

    def __init__(self, policy: Policy, max_new_tokens: int) -> None:
        self._policy = policy
        self._max_new_tokens = max_new_tokens
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._lens_B = torch.zeros(0, dtype=torch.long)
        self._longest = 0

    def start(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        device = self._policy.device
        self._longest = max(map(len, prompts))
        self._lens_B = torch.tensor([len(prompt) for prompt in prompts], device=device)
        hidden: list[torch.Tensor] = []
        start = 0
        budget = PREFILL_TOKENS.get(device.type, 4096)
        while start < len(prompts):
            stop = start + 1
            while stop < len(prompts) and (stop + 1 - start) * len(prompts[stop]) <= budget:
                stop += 1
            hidden.append(self._prefill(prompts[start:stop], start, len(prompts)))
            start = stop
        return torch.cat(hidden)

    def select(self, rows: torch.Tensor) -> None:
        self._keys = [keys[rows] for keys in self._keys]
        self._values = [values[rows] for values in self._values]
        self._lens_B = self._lens_B[rows]

    def advance(self, token_B: torch.Tensor) -> torch.Tensor:
        position_B, row_B = self._lens_B, torch.arange(len(token_B), device=token_B.device)
        self._lens_B = position_B + 1
        self._longest += 1
        size = self._longest
        mask_BK = torch.arange(size, device=token_B.device)[None] <= position_B[:, None]

        def extend(
            layer: int, k: torch.Tensor, v: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            keys, values = self._keys[layer], self._values[layer]
            keys[row_B, :, position_B] = k[:, :, 0]
            values[row_B, :, position_B] = v[:, :, 0]
            return keys[:, :, :size], values[:, :, :size]

        with self._policy.autocast():
            return next_hidden(self._policy.model, token_B, position_B, mask_BK, extend)

    def _prefill(
        self, prompts: Sequence[tuple[int, ...]], first_row: int, num_rows: int
    ) -> torch.Tensor:
        ids_BL = _pad(prompts, self._policy.device)
        length = ids_BL.shape[1]
        rows = slice(first_row, first_row + len(prompts))

        def keep(layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
            if layer == len(self._keys):
                shape = (num_rows, k.shape[1], self._longest + self._max_new_tokens, k.shape[3])
                self._keys.append(k.new_zeros(shape))
                self._values.append(v.new_zeros(shape))
            self._keys[layer][rows, :, :length] = k
            self._values[layer][rows, :, :length] = v

        last_B1 = self._lens_B[rows, None] - 1
        with self._policy.autocast():
            return hidden_at(self._policy.model, ids_BL, last_B1, keep)[:, 0]


class LibrarySession:
    """Right-padded prompts leave holes in the cache, which are masked while decoding."""

    def __init__(self, policy: Policy) -> None:
        layer_types = getattr(policy.model.config, "layer_types", None) or ["full_attention"]
        if set(layer_types) != {"full_attention"}:
            raise PolicyError(
                f"{type(policy.model).__name__}: layers are {sorted(set(layer_types))}, "
                "expected full attention only"
            )
        self._policy = policy
        self._cache = DynamicCache()
        self._lens_B = torch.zeros(0, dtype=torch.long)
        self._mask_BK = torch.zeros((0, 0), dtype=torch.bool)

    def start(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        ids_BL = _pad(prompts, self._policy.device)
        row_B = torch.arange(len(prompts), device=ids_BL.device)
        self._lens_B = torch.tensor([len(prompt) for prompt in prompts], device=ids_BL.device)
        column_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        self._mask_BK = column_L[None, :] < self._lens_B[:, None]
        with self._policy.autocast():
            output = self._policy.body(input_ids=ids_BL, cache=self._cache, use_cache=True)
        return output.last_hidden_state[row_B, self._lens_B - 1]

    def select(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._lens_B, self._mask_BK = self._lens_B[rows], self._mask_BK[rows]

    def advance(self, token_B: torch.Tensor) -> torch.Tensor:
        self._mask_BK = torch.cat([self._mask_BK, torch.ones_like(self._mask_BK[:, :1])], dim=1)
        with self._policy.autocast():
            output = self._policy.body(
                input_ids=token_B[:, None],
                attention_mask=self._mask_BK[:, None, None, :],
                position_ids=self._lens_B[:, None],
                cache=self._cache,
                use_cache=True,
            )
        self._lens_B = self._lens_B + 1
        return output.last_hidden_state[:, 0]


def _pad(prompts: Sequence[tuple[int, ...]], device: torch.device) -> torch.Tensor:
    rows = [torch.tensor(prompt) for prompt in prompts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
