"""Batches of records are compressed fast, and any reader reads them."""

from random import Random

from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from pop_stream.kafka.clients import compress_fast

_LZ4 = 3
_WORDS = ["agenda", "insight", "customer", "operation", "claimed", "emitted", "0", "17"]


def _values() -> list[bytes]:
    random = Random(1)
    return [" ".join(random.choices(_WORDS, k=60)).encode() for _ in range(200)]


def _batch(values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=_LZ4,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=0,
        batch_size=1_000_000,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1, key=b"key", value=value, headers=[])
    return bytes(builder.build())


def test_a_batch_is_compressed_at_the_fast_level() -> None:
    compress_fast()
    sample = b"".join(_values())
    fast, strong = codec.lz4_encode(sample, level=1), codec.lz4_encode(sample)
    assert len(strong) < 0.95 * len(fast)  # so that sizes tell the levels apart
    assert len(fast) < len(_batch(_values())) < len(sample)


def test_what_is_compressed_fast_is_read_again() -> None:
    compress_fast()
    records = MemoryRecords(_batch(_values())).next_batch()
    assert records is not None
    assert [bytes(record.value) for record in records] == _values()


def test_a_second_call_changes_nothing() -> None:
    compress_fast()
    once = _batch(_values())
    compress_fast()
    assert _batch(_values()) == once
