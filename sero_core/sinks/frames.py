"""One record of the spool: a header that says how long it is and what it must hash to, then bytes.

    magic "SRO1" | sequence u64 | length u32 | BLAKE2b-128 of the payload | CRC-32 of this header

Numbers are big-endian. A reader can tell a record that is being written (or was cut off by a crash)
from one that the disk damaged: only the last record of a spool may be incomplete, because each one
is synced before the next begins.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass

MAGIC = b"SRO1"
_FIELDS = struct.Struct(">4sQI16s")
_CHECK = struct.Struct(">I")
HEADER_BYTES = _FIELDS.size + _CHECK.size
MAX_PAYLOAD_BYTES = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Header:
    """`digest` is the BLAKE2b-128 of the payload; `length` its bytes."""

    sequence: int
    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """A complete record."""

    sequence: int
    digest: bytes
    payload: bytes


def digest_of(payload: bytes) -> bytes:
    """BLAKE2b with 16 bytes."""
    return hashlib.blake2b(payload, digest_size=16).digest()


def encode(sequence: int, payload: bytes) -> bytes:
    """Header and payload. Errors: ValueError for a payload of 4 GiB or more."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(
            f"record {sequence} has {len(payload)} bytes, allowed: {MAX_PAYLOAD_BYTES}; "
            "collect fewer episodes per iteration"
        )
    fields = _FIELDS.pack(MAGIC, sequence, len(payload), digest_of(payload))
    return fields + _CHECK.pack(zlib.crc32(fields)) + payload


def decode_header(data: bytes) -> Header | None:
    """The header at the start of `data`; None when it is incomplete or not one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, sequence, length, digest = _FIELDS.unpack_from(data)
    (check,) = _CHECK.unpack_from(data, _FIELDS.size)
    if magic != MAGIC or check != zlib.crc32(data[: _FIELDS.size]):
        return None
    return Header(sequence, length, digest)
