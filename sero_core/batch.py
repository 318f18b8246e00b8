"""Rows become tensors here and nowhere else.

One row is one step: its prompt and its answer. Policy rows and oracle rows are two types with two
batches, each with its own denominator. A batch keeps rows ragged; `microbatches` groups rows under
a token budget, and `pad` or `pack` lays one such group out for a forward pass.
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
    tokens. `temperatures` (B,) float32 are those of the sampler. `weights` (L_b,) float32 multiply
    the surrogate (None = 1), `ref_logprobs` (L_b,) float32 are the reference policy's (None = no
    KL in the loss).
    """

    input_ids: tuple[torch.Tensor, ...]
    prompt_lens: tuple[int, ...]
    advantages: tuple[torch.Tensor, ...]
    old_logprobs: tuple[torch.Tensor, ...]
    masks: tuple[torch.Tensor, ...]
    temperatures: torch.Tensor
    weights: tuple[torch.Tensor, ...] | None = None
    ref_logprobs: tuple[torch.Tensor, ...] | None = None

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


NO_ORACLE_ROWS = OracleBatch((), (), (), torch.zeros(0, dtype=torch.float64))
"""What a rank trains on whose own episodes have no branch."""


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Rows laid out for one forward pass: right-padded, or packed behind each other in one line.

    `input_ids_BL` are the lines; `position_ids_BL` are given where they do not run 0..L-1 (packed:
    they start again at 0 with each row, by which the model keeps rows apart). Answer tokens of all
    rows lie behind each other (N): `target_N` is the token, `row_N` its row in the order given,
    `slot_N` the place in the flattened (B * L) output that predicts it.
    """

    input_ids_BL: torch.Tensor
    position_ids_BL: torch.Tensor | None
    row_N: torch.Tensor
    slot_N: torch.Tensor
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


def microbatches(
    lengths: Sequence[int], rows: Sequence[int], max_tokens: int, is_packed: bool = False
) -> list[list[int]]:
    """Split row numbers `rows` into groups of at most `max_tokens`; `lengths[row]` is a length.

    Padded: rows of similar length, counted after padding to the longest. Packed: the plain sum,
    first group that still has room. Longest first, ties in the order given; a row longer than the
    budget forms a group of its own. Empty for no rows.
    """
    order = sorted(rows, key=lambda row: -lengths[row])
    groups: list[list[int]] = []
    if not is_packed:
        for row in order:
            if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= max_tokens:
                groups[-1].append(row)
            else:
                groups.append([row])
        return groups
    room: list[int] = []
    for row in order:
        place = next((i for i, left in enumerate(room) if lengths[row] <= left), None)
        if place is None:
            place = len(groups)
            groups.append([])
            room.append(max_tokens)
        groups[place].append(row)
        room[place] -= lengths[row]
    return groups


def pad(
    input_ids: Sequence[torch.Tensor], prompt_lens: Sequence[int], device: torch.device
) -> TokenRows:
    """Right-pad rows (B of them) to (B, L) and lay out their answer tokens; pad id is 0."""
    input_ids_BL = torch.nn.utils.rnn.pad_sequence(list(input_ids), batch_first=True)
    length = input_ids_BL.shape[1]
    starts = [index * length for index in range(len(input_ids))]
    return _laid_out(input_ids_BL, None, starts, input_ids, prompt_lens, device)


def pack(
    input_ids: Sequence[torch.Tensor], prompt_lens: Sequence[int], device: torch.device
) -> TokenRows:
    """Put rows behind each other in one line (1, sum of lengths), without padding."""
    lengths = [len(ids) for ids in input_ids]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    positions = torch.cat([torch.arange(length) for length in lengths])
    line = torch.cat(list(input_ids))
    return _laid_out(line[None], positions[None], starts, input_ids, prompt_lens, device)


def _laid_out(
    input_ids_BL: torch.Tensor,
    position_ids_BL: torch.Tensor | None,
    starts: Sequence[int],
    input_ids: Sequence[torch.Tensor],
    prompt_lens: Sequence[int],
    device: torch.device,
) -> TokenRows:
    """`starts` are the places of each row's first token in the flattened lines."""
    rows: list[torch.Tensor] = []
    slots: list[torch.Tensor] = []
    for index, (ids, prompt_len) in enumerate(zip(input_ids, prompt_lens, strict=True)):
        rows.append(torch.full((len(ids) - prompt_len,), index))
        slots.append(torch.arange(prompt_len - 1, len(ids) - 1) + starts[index])
    slot_N = torch.cat(slots)
    return TokenRows(
        input_ids_BL=input_ids_BL.to(device),
        position_ids_BL=None if position_ids_BL is None else position_ids_BL.to(device),
        row_N=torch.cat(rows).to(device),
        slot_N=slot_N.to(device),
        target_N=input_ids_BL.flatten()[slot_N + 1].to(device),
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
