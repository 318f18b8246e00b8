"""Sums over the ranks of a data-parallel run; the identity where there is one process.

Each rank holds its own rows. Only sums travel: counts before the forward pass, gradients after it,
so that W ranks take the same step as one process with all the rows (docs/correctness.md T16).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import distributed


def num_ranks() -> int:
    """Processes that train together: 1 unless `torch.distributed` is initialised."""
    return distributed.get_world_size() if _is_on() else 1


def sum_over_ranks(values: Sequence[float]) -> list[float]:
    """Each value summed over all ranks, in float64. Every rank passes as many values."""
    return _reduce(values, distributed.ReduceOp.SUM)


def max_over_ranks(values: Sequence[float]) -> list[float]:
    """Each value's maximum over all ranks."""
    return _reduce(values, distributed.ReduceOp.MAX)


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace every gradient by its sum over all ranks. Every rank has the same parameters, and a
    gradient (of zeros, if it had no row) for each of them."""
    if not _is_on():
        return
    handles = [
        distributed.all_reduce(parameter.grad, async_op=True)
        for parameter in parameters
        if parameter.grad is not None
    ]
    for handle in handles:
        if handle is not None:
            handle.wait()


def _reduce(values: Sequence[float], operation: distributed.ReduceOp.RedOpType) -> list[float]:
    if not _is_on():
        return list(values)
    place = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor(list(values), dtype=torch.float64, device=place)
    distributed.all_reduce(tensor, op=operation)
    return [float(value) for value in tensor.tolist()]


def _is_on() -> bool:
    return distributed.is_available() and distributed.is_initialized()
