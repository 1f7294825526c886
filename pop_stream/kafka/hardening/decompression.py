"""What is fetched is decompressed up to a bound, whatever its sender has packed into it.

A broker bounds what it takes by its compressed size. A batch of a few hundred bytes may hold
gigabytes, and the client decompresses a batch as a whole, all at once, before any part of ours
sees a record of it. Public topics are written by anyone, so:

- A batch that holds more than `MAX_BATCH_BYTES`, or is not what its codec says, is read as one
  record without a value, which says why in the header `pop-unreadable`; its reader makes a dead
  letter of it and goes on behind it. Clients make batches of a few kibibytes to a mebibyte.
- Of one answer of a broker no more batches are decompressed once they held
  `MAX_RESPONSE_BYTES`. The others are fetched again when these are taken.

The client has no setting for either, so its decoders and the class that walks over the batches
of an answer are replaced, by the names under which its modules call them. Brokers are to bound
it too (https://github.com/apache/kafka/pull/23449), each record and not the whole batch.
"""

import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import cramjam
from aiokafka.codec import snappy_decode
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from pop_stream.model.events.schema_version import UNREADABLE_HEADER

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
MAX_RESPONSE_BYTES: Final = 32 * 1024 * 1024

_GZIP_BITS: Final = 31
_MAX_GZIP_MEMBERS: Final = 16
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_SIZE: Final = struct.Struct("!i")
_BUFFER_FULL: Final = "whole buffer"

_scratch = threading.local()

Decode = Callable[[Any], bytes]


class UndecodableBatchError(Exception):
    """A batch that holds more than it may, or is not what its codec says; with the reason."""


class _UnreadableBatch(NamedTuple):
    """The record that stands for such a batch, as the client's own records look."""

    offset: int
    timestamp: int
    timestamp_type: int
    headers: Sequence[tuple[str, bytes]]
    key: None = None
    value: None = None
    checksum: None = None


def bound_decompression() -> None:
    """Bound what all consumers of this process decompress; a second call changes nothing."""
    decoders = sys.modules[DefaultRecordBatch.__module__]
    for name, decode in _DECODERS.items():
        setattr(decoders, name, decode)
    fetcher.MemoryRecords = BoundedRecords


class BoundedRecords:
    """The batches of one answer, of one partition; in the place of the client's class.

    Args:
        answered: The bytes of the answer.
    """

    def __init__(self, answered: bytes) -> None:
        self._batches = MemoryRecords(answered)
        self._decompressed_bytes = 0

    def has_next(self) -> bool:
        """Whether there is another batch that may be decompressed now."""
        return self._decompressed_bytes < MAX_RESPONSE_BYTES and self._batches.has_next()

    def size_in_bytes(self) -> int:
        """Of the answer; more than none without a batch means that a part of one came."""
        size: int = self._batches.size_in_bytes()
        return size

    def next_batch(self) -> Any:  # noqa: ANN401  # aiokafka is untyped
        """The next batch, decompressed when its records are read."""
        batch = self._batches.next_batch()
        is_plain = not getattr(batch, "compression_type", 0) or batch.is_control_batch
        return batch if is_plain else _BoundedBatch(batch, self._count)

    def _count(self, size: int) -> None:
        self._decompressed_bytes += size


class _BoundedBatch:
    """A compressed batch whose records are never more than may be."""

    def __init__(self, batch: Any, count: Callable[[int], None]) -> None:  # noqa: ANN401
        self._batch = batch
        self._count = count

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as the batch has it
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            for record in self._batch:
                self._count(len(record.value or b"") + len(record.key or b""))
                yield record
        except UndecodableBatchError as error:
            self._count(MAX_BATCH_BYTES)
            yield _UnreadableBatch(
                self._batch.next_offset - 1,
                self._batch.max_timestamp,
                self._batch.timestamp_type,
                ((UNREADABLE_HEADER, str(error).encode()),),
            )


def _too_large() -> UndecodableBatchError:
    msg = (
        f"a compressed batch that holds more than {MAX_BATCH_BYTES:,} bytes; send fewer or "
        "smaller records at once"
    )
    return UndecodableBatchError(msg)


def _gzip(payload: Any) -> bytes:  # noqa: ANN401  # any buffer
    left, parts, room = bytes(payload), list[bytes](), MAX_BATCH_BYTES
    while left:
        if len(parts) == _MAX_GZIP_MEMBERS:  # each costs a copy of what is left
            msg = f"gzip in more than {_MAX_GZIP_MEMBERS} members"
            raise UndecodableBatchError(msg)
        decompressor = zlib.decompressobj(_GZIP_BITS)
        try:
            parts.append(decompressor.decompress(left, room + 1))
        except zlib.error as error:
            raise UndecodableBatchError(str(error)) from None
        room -= len(parts[-1])
        if room < 0 or decompressor.unconsumed_tail:
            raise _too_large()
        left = decompressor.unused_data
    return b"".join(parts)


def _within_scratch(decompress_into: Callable[[bytes, bytearray], int]) -> Decode:
    """A decoder that writes into a buffer of the thread's own, and no further."""

    def decode(payload: Any) -> bytes:  # noqa: ANN401  # any buffer
        buffer = getattr(_scratch, "buffer", None)
        if buffer is None:
            buffer = _scratch.buffer = bytearray(MAX_BATCH_BYTES)
        try:
            size = decompress_into(bytes(payload), buffer)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL in str(error):
                raise _too_large() from None
            raise UndecodableBatchError(str(error)) from None
        with memoryview(buffer) as view:
            return bytes(view[:size])

    return decode


def _snappy(payload: Any) -> bytes:  # noqa: ANN401  # any buffer
    data = bytes(payload)
    try:
        if sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(data))) > MAX_BATCH_BYTES:
            raise _too_large()
        return bytes(snappy_decode(data))
    except (cramjam.DecompressionError, struct.error) as error:
        raise UndecodableBatchError(str(error)) from None


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_XERIAL_MAGIC):
        yield data
        return
    start = _XERIAL_HEADER_BYTES
    while start < len(data):
        (size,) = _SIZE.unpack_from(data, start)
        start += _SIZE.size
        if size < 0:
            msg = "a block of a negative size"
            raise UndecodableBatchError(msg)
        yield data[start : start + size]
        start += size


_DECODERS: Final[dict[str, Decode]] = {
    "gzip_decode": _gzip,
    "snappy_decode": _snappy,
    "lz4_decode": _within_scratch(cramjam.lz4.decompress_into),
    "zstd_decode": _within_scratch(cramjam.zstd.decompress_into),
}
"""By the names under which the client's batches call them."""
