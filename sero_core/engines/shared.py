"""Teacher-forced log-probabilities of rows that begin alike: what they share is read once.

A family of rows with a common prefix takes two passes: the prefix alone, into a cache; then the
rest of every row, several rows packed behind each other in one line, where a token sees the cached
prefix and the tokens before it of its own row (a tree of depth two). Positions continue from the
prefix, so the numbers are those of a row that is read alone.

It pays where rows differ in their ends only, as when every admissible action of a state is scored
(6 to 8 times as fast on a CPU). The prompts of consecutive branch steps share too little: a token
costs up to 1.5 times as much here as in a plain pass (benchmarks/scoring.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from transformers import DynamicCache

from sero_core.batch import microbatches
from sero_core.policy import Policy, log_softmax_at

MIN_SHARED_TOKENS = 16
"""A shorter common prefix makes no family."""
MAX_COST = 0.6
"""A family is used where it reads at most this share of its rows' tokens."""
LINE_TOKENS = 256
"""Tokens of several rows' rests behind each other in one line."""

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """`ids` is prompt and completion; the last `num_scored` >= 1 of them are scored, and at least
    one token comes before those."""

    ids: Ids
    num_scored: int

    @property
    def max_shared(self) -> int:
        """The token before the first scored one is not shared: its output predicts that one."""
        return len(self.ids) - self.num_scored - 1


@dataclass(frozen=True, slots=True)
class Family:
    """Rows (by number) whose first `num_shared` tokens are equal; none of these is scored."""

    num_shared: int
    members: tuple[int, ...]


def families(rows: Sequence[Row]) -> list[Family]:
    """Every row in one family, so that few tokens are read in all: sorted neighbours join while
    that saves tokens. A family of n rows that share c tokens costs c + sum (len - c); a row that
    shares less than `MIN_SHARED_TOKENS` with its neighbours is one by itself, with nothing shared.
    """
    order = sorted(range(len(rows)), key=lambda number: rows[number].ids)
    found: list[Family] = []
    members, prefix = order[:1], rows[order[0]].max_shared if order else 0
    for left, right in pairwise(order):
        joint = min(prefix, rows[right].max_shared, _num_common(rows[left].ids, rows[right].ids))
        lost = (len(members) - 1) * (prefix - joint)
        if joint >= MIN_SHARED_TOKENS and joint > lost:
            members, prefix = [*members, right], joint
            continue
        found.append(_family(members, prefix))
        members, prefix = [right], rows[right].max_shared
    return [*found, _family(members, prefix)] if members else []


def num_read(rows: Sequence[Row], family: Family) -> int:
    """Tokens that a family reads, without padding."""
    rests = sum(len(rows[member].ids) - family.num_shared for member in family.members)
    return family.num_shared + rests


def worthwhile(rows: Sequence[Row], found: Iterable[Family]) -> list[Family]:
    """The families that read at most `MAX_COST` of their rows' tokens."""
    return [
        family
        for family in found
        if family.num_shared > 0
        and num_read(rows, family) <= MAX_COST * sum(len(rows[m].ids) for m in family.members)
    ]


def score_families(
    policy: Policy,
    rows: Sequence[Row],
    found: Sequence[Family],
    *,
    temperature: float,
    forward_tokens: int,
    head_tokens: int,
) -> dict[int, tuple[float, ...]]:
    """log softmax(logits / temperature) of the scored tokens, float32, by number of the row.

    Families must share something. `forward_tokens`: tokens of one pass, prefixes and rests;
    `head_tokens`: tokens whose logits exist at once.
    """
    lines = [line for family in found for line in _lines(rows, family)]
    lengths = [line.family.num_shared + line.num_tokens for line in lines]
    scores: dict[int, tuple[float, ...]] = {}
    for group in microbatches(lengths, range(len(lines)), forward_tokens):
        chosen = [lines[number] for number in group]
        values = _score_lines(policy, rows, chosen, temperature, head_tokens)
        start = 0
        for member in (member for line in chosen for member in line.members):
            stop = start + rows[member].num_scored
            scores[member] = tuple(values[start:stop])
            start = stop
    return scores


@dataclass(frozen=True, slots=True)
class _Line:
    """The rests of some rows of a family, one behind the other."""

    family: Family
    members: tuple[int, ...]
    num_tokens: int


def _lines(rows: Sequence[Row], family: Family) -> list[_Line]:
    lines: list[_Line] = []
    members: list[int] = []
    num_tokens = 0
    for member in family.members:
        rest = len(rows[member].ids) - family.num_shared
        if members and num_tokens + rest > LINE_TOKENS:
            lines.append(_Line(family, tuple(members), num_tokens))
            members, num_tokens = [], 0
        members.append(member)
        num_tokens += rest
    return [*lines, _Line(family, tuple(members), num_tokens)]


@torch.inference_mode()
def _score_lines(
    policy: Policy,
    rows: Sequence[Row],
    lines: Sequence[_Line],
    temperature: float,
    head_tokens: int,
) -> list[float]:
    """Log-probabilities of the scored tokens of all rows of the lines, in order."""
    device = policy.device
    prefixes = [rows[line.members[0]].ids[: line.family.num_shared] for line in lines]
    cache, num_cached = _read_prefixes(policy, prefixes)
    laid_out = [_lay_out(rows, line) for line in lines]
    ids_BL = _pad([part.ids_L for part in laid_out], 0)
    row_BL = _pad([part.row_L for part in laid_out], -1)
    length = ids_BL.shape[1]
    is_own_BLL = (row_BL[:, :, None] == row_BL[:, None, :]) & _triangle(length)
    shared_B = torch.tensor([len(prefix) for prefix in prefixes])
    is_shared_BC = torch.arange(num_cached)[None, :] < shared_B[:, None]
    mask_BLK = torch.cat([is_shared_BC[:, None].expand(-1, length, -1), is_own_BLL], dim=2)
    with policy.autocast():
        output = policy.body(
            input_ids=ids_BL.to(device),
            attention_mask=mask_BLK[:, None].to(device),
            position_ids=_pad([part.position_L for part in laid_out], 0).to(device),
            cache=cache,
            use_cache=True,
        )
    slot_N = torch.cat([part.slot_N + index * length for index, part in enumerate(laid_out)])
    hidden_NH = output.last_hidden_state.flatten(0, 1)[slot_N.to(device)].float()
    target_N = torch.cat([part.target_N for part in laid_out]).to(device)
    values: list[float] = []
    for start in range(0, len(target_N), head_tokens):
        chunk = slice(start, start + head_tokens)
        logits_CV = policy.head(hidden_NH[chunk]).float()
        temperature_C = torch.full_like(logits_CV[:, 0], temperature)
        values += log_softmax_at(logits_CV, target_N[chunk], temperature_C).tolist()
    return values


def _read_prefixes(policy: Policy, prefixes: Sequence[Ids]) -> tuple[DynamicCache, int]:
    """A cache with one entry per prefix given, each distinct one read once, and its length."""
    distinct = list(dict.fromkeys(prefixes))
    place = {prefix: index for index, prefix in enumerate(distinct)}
    ids_PC = _pad([torch.tensor(prefix) for prefix in distinct], 0).to(policy.device)
    cache = DynamicCache()
    with policy.autocast():
        policy.body(input_ids=ids_PC, cache=cache, use_cache=True)
    if len(distinct) < len(prefixes):
        source = torch.tensor([place[prefix] for prefix in prefixes], device=policy.device)
        cache.batch_select_indices(source)
    return cache, ids_PC.shape[1]


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """A line as tensors (L): token, row it belongs to, position. `slot_N` are the places whose
    output predicts the scored tokens `target_N`."""

    ids_L: torch.Tensor
    row_L: torch.Tensor
    position_L: torch.Tensor
    slot_N: torch.Tensor
    target_N: torch.Tensor


def _lay_out(rows: Sequence[Row], line: _Line) -> _LaidOut:
    shared = line.family.num_shared
    ids: list[int] = []
    owners: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    targets: list[int] = []
    for member in line.members:
        row = rows[member]
        rest = row.ids[shared:]
        first = len(ids) + len(rest) - row.num_scored - 1
        slots += range(first, first + row.num_scored)
        targets += row.ids[-row.num_scored :]
        ids += rest
        owners += [member] * len(rest)
        positions += range(shared, len(row.ids))
    return _LaidOut(*(torch.tensor(part) for part in (ids, owners, positions, slots, targets)))


def _family(members: Sequence[int], prefix: int) -> Family:
    return Family(prefix if len(members) > 1 else 0, tuple(members))


def _num_common(left: Ids, right: Ids) -> int:
    shorter = min(len(left), len(right))
    return next((place for place in range(shorter) if left[place] != right[place]), shorter)


def _triangle(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _pad(parts: Sequence[torch.Tensor], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=value)
