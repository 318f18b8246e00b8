"""The hash of a reached state, the same for both engines, in any process, on any machine."""

from __future__ import annotations

from hashlib import blake2b

from sero_core.types import Observation


def state_hash(observation: Observation, facts_digest: int) -> str:
    """BLAKE2b-128 over text, admissible actions, won, and the digest of the facts, in hex.

    Every part is preceded by its length, so different parts never join to the same bytes.
    """
    hasher = blake2b(digest_size=16)
    commands = "\n".join(observation.admissible)
    for part in (observation.text, commands, "won" if observation.is_won else ""):
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(8, "big"))
        hasher.update(encoded)
    hasher.update(facts_digest.to_bytes(16, "big"))
    return hasher.hexdigest()
