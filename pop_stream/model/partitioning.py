"""Which partition a key belongs to: the rule every Kafka client follows by default."""

from functools import lru_cache
from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_LANES: Final = tuple(Struct(f"<{count}I") for count in range(65))


@lru_cache(maxsize=8_192)  # an agenda's id is asked for several times in a row
def murmur2(key: bytes) -> int:
    """MurmurHash2, 32 bit, unsigned, with the seed of the Java client's partitioner."""
    length = len(key)
    hashed = _SEED ^ length
    whole = length >> 2
    lanes = _LANES[whole] if whole < len(_LANES) else Struct(f"<{whole}I")
    for lane in lanes.unpack_from(key):
        mixed = (lane * _M) & _WORD
        mixed = ((mixed ^ (mixed >> 24)) * _M) & _WORD
        hashed = ((hashed * _M) & _WORD) ^ mixed
    if tail := key[whole << 2 :]:
        hashed = ((hashed ^ int.from_bytes(tail, "little")) * _M) & _WORD
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _WORD
    return hashed ^ (hashed >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition, from 0, that the default partitioner gives this key.

    Args:
        key: A record's key.
        partitions: How many partitions the topic has, at least 1.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
