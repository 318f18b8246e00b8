"""Seeds derived from (run seed, what, where): the same draw whatever the number of workers."""

from __future__ import annotations

import hashlib
import random


def derive_seed(run_seed: int, *parts: str | int) -> int:
    """A 63-bit seed from the run's seed and a path such as ("episode", iteration, task_id,
    index).
    """
    text = "\x1f".join([str(run_seed), *(str(part) for part in parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def derived_random(run_seed: int, *parts: str | int) -> random.Random:
    """A generator of its own for one purpose."""
    return random.Random(derive_seed(run_seed, *parts))
