"""What is decompressed of an answer, whatever its sender packed into a few bytes."""

import gzip
import inspect
import re
import struct
import sys
import tracemalloc

import pytest
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from pop_stream.kafka.hardening.decompression import (
    MAX_BATCH_BYTES,
    MAX_RESPONSE_BYTES,
    UndecodableBatchError,
    bound_decompression,
)
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.records import TopicPartition

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(autouse=True)
def bounded():
    bound_decompression()


def batch(codec, *values, first=0):
    """An encoded batch, at the offset at which a broker would put it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp=1, key=b"k", value=value, headers=[])
    built = bytearray(builder.build())
    built[:8] = struct.pack(">q", first)
    return bytes(built)


def unpack(answered, *, at=0):
    records = fetcher.MemoryRecords(answered)
    reader = PartitionRecords(TopicPartition("t", 0), records, [], at, None, None, True, 0)
    return [*reader], reader.next_fetch_offset


@pytest.mark.parametrize("codec", [0, *CODECS.values()], ids=["none", *CODECS])
def test_an_ordinary_batch_is_read_as_it_was_written(codec):
    values = [b"%d" % n * 1_000 for n in range(50)]
    found, next_offset = unpack(batch(codec, *values) + batch(codec, b"last", first=50))
    assert [one.value for one in found] == [*values, b"last"]
    assert [one.offset for one in found] == [*range(51)]
    assert next_offset == 51


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_the_largest_batch_is_read(codec):
    value = b"x" * (MAX_BATCH_BYTES - 100)
    found, _ = unpack(batch(codec, value))
    assert [one.value for one in found] == [value]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_batch_that_grows_is_one_unreadable_record_and_the_next_is_read(codec):
    grown = batch(codec, *[b"\0" * 500_000] * 32)
    found, next_offset = unpack(grown + batch(codec, b"next", first=32))
    assert [one.offset for one in found] == [31, 32]
    assert found[1].value == b"next"
    assert next_offset == 33
    with pytest.raises(UnreadableRecordError, match="more than 8,388,608 bytes"):
        checked_value(found[0])


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_batch_that_is_not_what_its_codec_says_is_one_unreadable_record(codec):
    broken = bytearray(batch(0, b"plain", b"plain"))
    broken[22] |= codec
    records = fetcher.MemoryRecords(bytes(broken))
    reader = PartitionRecords(TopicPartition("t", 0), records, [], 0, None, None, False, 0)
    (found,) = [*reader]
    assert found.offset == 1
    with pytest.raises(UnreadableRecordError):
        checked_value(found)


def test_of_several_members_of_gzip_all_count():
    half = MAX_BATCH_BYTES // 2
    members = [gzip.compress(b"x" * half), gzip.compress(b"y" * half)]
    decode = vars(sys.modules[DefaultRecordBatch.__module__])["gzip_decode"]
    assert decode(b"".join(members)) == b"x" * half + b"y" * half
    with pytest.raises(UndecodableBatchError, match="more than 8,388,608 bytes"):
        decode(b"".join([*members, gzip.compress(b"z")]))
    with pytest.raises(UndecodableBatchError, match="members"):
        decode(gzip.compress(b"") * 50_000)


def test_an_answer_with_a_part_of_a_batch_has_no_next_and_says_its_size():
    whole = batch(0, b"x" * 1_000)
    for answered in (b"", whole[:100]):
        records = fetcher.MemoryRecords(answered)
        assert not records.has_next()
        assert records.size_in_bytes() == len(answered)


def test_whatever_the_client_asks_of_an_answer_is_there():
    calls = set(re.findall(r"\brecords\.(\w+)\(", inspect.getsource(fetcher)))
    assert {"has_next", "next_batch", "size_in_bytes"} <= calls
    assert all(hasattr(fetcher.MemoryRecords, name) for name in calls & set(dir(MemoryRecords)))


def test_an_answer_of_many_batches_is_read_in_parts():
    size = 4 * 1024 * 1024
    many = [batch(CODECS["gzip"], b"\0" * size, first=n) for n in range(20)]
    found, next_offset = unpack(b"".join(many))
    assert len(found) == MAX_RESPONSE_BYTES // size == next_offset
    rest, _ = unpack(b"".join(many[next_offset:]), at=next_offset)
    assert rest[0].offset == next_offset


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_what_grows_takes_little_memory(codec):
    grown = batch(codec, b"\0" * 64_000_000)
    tracemalloc.start()
    try:
        unpack(grown)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BATCH_BYTES
    finally:
        tracemalloc.stop()
