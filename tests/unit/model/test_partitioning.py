"""The partition of a key, as every Kafka client reckons it."""

import pytest

from pop_stream.model.partitioning import murmur2, partition_of

# Of the Java client's own test, `UtilsTest.testMurmur2`, as unsigned numbers.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_the_hash_is_the_java_clients(key, signed):
    assert murmur2(key) == signed % 2**32


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 255, 256, 257, 260, 261, 1_000])
def test_any_length_has_a_partition(length):
    assert 0 <= partition_of(b"k" * length, 7) < 7


def test_the_partition_is_the_hash_without_its_sign():
    assert partition_of(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


def test_it_agrees_with_aiokafka():
    from aiokafka.partitioner import DefaultPartitioner  # noqa: PLC0415

    theirs, partitions = DefaultPartitioner(), [*range(12)]
    for number in range(200):
        key = f"agenda-{number}".encode() * (1 + number % 30)
        assert partition_of(key, 12) == theirs(key, partitions, partitions)


def test_keys_spread():
    found = {partition_of(f"agenda-{number}".encode(), 8) for number in range(200)}
    assert found == {*range(8)}
