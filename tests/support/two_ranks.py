"""Run a function on two gloo ranks, each in a process of its own."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

NUM_RANKS = 2


def on_two_ranks(function: Callable[[int], Any], folder: Path, timeout_s: float = 120) -> list[Any]:
    """`function(rank)` of both ranks, in order. The function must be importable.

    Errors: RuntimeError with the traceback of a rank that failed, or that did not end in time.
    """
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_run, args=(function, rank, str(folder)))
        for rank in range(NUM_RANKS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout_s)
        process.kill()
    results: list[Any] = []
    for rank in range(NUM_RANKS):
        result, failure = folder / f"{rank}.pt", folder / f"{rank}.txt"
        if not result.exists():
            text = failure.read_text() if failure.exists() else f"no answer after {timeout_s} s"
            raise RuntimeError(f"rank {rank}: {text}")
        results.append(torch.load(result, weights_only=False))
    return results


def _run(function: Callable[[int], Any], rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=NUM_RANKS
    )
    try:
        torch.save(function(rank), f"{folder}/{rank}.pt")
    except Exception:
        Path(f"{folder}/{rank}.txt").write_text(traceback.format_exc())
        raise
    finally:
        distributed.destroy_process_group()
