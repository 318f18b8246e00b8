"""Rows become tensors here and nowhere else.

One row is one step: its prompt and its answer. Policy rows and oracle rows are two types with two
batches, each with its own denominator. A batch keeps rows ragged; `microbatches` groups rows of
similar length under a token budget and `pad` right-pads one such group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sero_core.types import SeroError


class BatchError(SeroError):
    """A row that cannot be trained on; the message names the row and the field."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One step of the policy.

    `advantage` is one number for the whole answer, or one per token of `token_ids`. `old_logprobs`
    are the behavior policy's, one per token, at `temperature` (> 0). `mask` drops single tokens
    from the loss (None = all count).
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    advantage: float | tuple[float, ...]
    old_logprobs: tuple[float, ...]
    temperature: float = 1.0
    mask: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class OracleRow:
    """One branch step. Only `scored` tokens enter the loss; `weight` is w_k >= 0, a constant."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    scored: tuple[bool, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Policy rows as ragged tensors on the CPU; every tuple has one entry per row b.

    `input_ids[b]` (P_b + L_b,) int64 is prompt and answer, `prompt_lens[b]` = P_b >= 1.
    `advantages`, `old_logprobs` (L_b,) float32 and `masks` (L_b,) bool belong to the answer's
    tokens. `temperatures` (B,) float32 are those of the sampler.
    """

    input_ids: tuple[torch.Tensor, ...]
    prompt_lens: tuple[int, ...]
    advantages: tuple[torch.Tensor, ...]
    old_logprobs: tuple[torch.Tensor, ...]
    masks: tuple[torch.Tensor, ...]
    temperatures: torch.Tensor

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class OracleBatch:
    """Oracle rows as ragged tensors on the CPU: as `Batch`, with `weights` (B,) float64 and
    `scored` (L_b,) bool, at least one true per row."""

    input_ids: tuple[torch.Tensor, ...]
    prompt_lens: tuple[int, ...]
    scored: tuple[torch.Tensor, ...]
    weights: torch.Tensor

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """Right-padded rows. Answer tokens of all rows lie behind each other (N): `target_N` is the
    token, `row_N` its row in `input_ids_BL`, `position_N` the position whose output predicts it."""

    input_ids_BL: torch.Tensor
    row_N: torch.Tensor
    position_N: torch.Tensor
    target_N: torch.Tensor


def build_batch(rows: Sequence[PolicyRow]) -> Batch:
    """Policy rows to tensors, in order. Errors: `BatchError` for an empty prompt or answer, lengths
    that differ, a temperature that is not positive, or a number that is not finite."""
    for index, row in enumerate(rows):
        name = f"policy row {index}"
        _check_ids(name, row.prompt_ids, row.token_ids)
        _check_length(name, "old_logprobs", len(row.old_logprobs), len(row.token_ids))
        if row.mask is not None:
            _check_length(name, "mask", len(row.mask), len(row.token_ids))
        advantages = _per_token(row)
        _check_length(name, "advantage", len(advantages), len(row.token_ids))
        if not all(map(math.isfinite, advantages)):
            raise BatchError(f"{name}: advantage is {row.advantage}, expected a finite number")
        if not all(map(math.isfinite, row.old_logprobs)):
            raise BatchError(f"{name}: old_logprobs are not finite: {row.old_logprobs}")
        if not (math.isfinite(row.temperature) and row.temperature > 0):
            raise BatchError(f"{name}: temperature is {row.temperature}, expected more than 0")
    return Batch(
        input_ids=tuple(torch.tensor(row.prompt_ids + row.token_ids) for row in rows),
        prompt_lens=tuple(len(row.prompt_ids) for row in rows),
        advantages=tuple(torch.tensor(_per_token(row), dtype=torch.float32) for row in rows),
        old_logprobs=tuple(torch.tensor(row.old_logprobs, dtype=torch.float32) for row in rows),
        masks=tuple(
            torch.tensor([True] * len(row.token_ids) if row.mask is None else row.mask)
            for row in rows
        ),
        temperatures=torch.tensor([row.temperature for row in rows], dtype=torch.float32),
    )


def build_oracle_batch(rows: Sequence[OracleRow]) -> OracleBatch | None:
    """Oracle rows to tensors, in order; None if there are none. Errors: `BatchError` for an empty
    prompt or answer, a mask of another length or with no token, a negative or non-finite weight."""
    for index, row in enumerate(rows):
        name = f"oracle row {index}"
        _check_ids(name, row.prompt_ids, row.token_ids)
        _check_length(name, "scored", len(row.scored), len(row.token_ids))
        if not any(row.scored):
            raise BatchError(f"{name}: no token is scored")
        if not (math.isfinite(row.weight) and row.weight >= 0):
            raise BatchError(f"{name}: weight is {row.weight}, expected a finite number >= 0")
    if not rows:
        return None
    return OracleBatch(
        input_ids=tuple(torch.tensor(row.prompt_ids + row.token_ids) for row in rows),
        prompt_lens=tuple(len(row.prompt_ids) for row in rows),
        scored=tuple(torch.tensor(row.scored) for row in rows),
        weights=torch.tensor([row.weight for row in rows], dtype=torch.float64),
    )


def microbatches(lengths: Sequence[int], rows: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split row numbers `rows` into groups of similar length, at most `max_tokens` after padding.

    `lengths[row]` is the length of a row. Longest first, ties in the order given; a row longer than
    the budget forms a group of its own. Empty for no rows.
    """
    groups: list[list[int]] = []
    for row in sorted(rows, key=lambda row: -lengths[row]):
        if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def pad(
    input_ids: Sequence[torch.Tensor], prompt_lens: Sequence[int], device: torch.device
) -> PaddedRows:
    """Right-pad rows (B of them) to (B, L) and lay out their answer tokens; pad id is 0."""
    input_ids_BL = torch.nn.utils.rnn.pad_sequence(list(input_ids), batch_first=True)
    rows: list[torch.Tensor] = []
    positions: list[torch.Tensor] = []
    for index, (ids, prompt_len) in enumerate(zip(input_ids, prompt_lens, strict=True)):
        rows.append(torch.full((len(ids) - prompt_len,), index))
        positions.append(torch.arange(prompt_len - 1, len(ids) - 1))
    row_N, position_N = torch.cat(rows), torch.cat(positions)
    target_N = input_ids_BL[row_N, position_N + 1]
    return PaddedRows(
        input_ids_BL.to(device), row_N.to(device), position_N.to(device), target_N.to(device)
    )


def _per_token(row: PolicyRow) -> tuple[float, ...]:
    if isinstance(row.advantage, tuple):
        return row.advantage
    return (row.advantage,) * len(row.token_ids)


def _check_ids(name: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> None:
    if not prompt_ids or not token_ids:
        raise BatchError(
            f"{name}: expected a prompt and an answer, "
            f"got {len(prompt_ids)} prompt ids and {len(token_ids)} token ids"
        )


def _check_length(name: str, field: str, got: int, expected: int) -> None:
    if got != expected:
        raise BatchError(f"{name}: {field} has {got} entries, expected one per token: {expected}")
