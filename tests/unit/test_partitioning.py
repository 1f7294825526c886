"""Keys go where every Kafka client puts them."""

import random

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as reference

from pop_stream.core.partitioning import murmur2, partition_of


@pytest.mark.parametrize("length", [*range(40), 255, 256, 257, 1000])
def test_the_hash_is_the_clients_own(length):
    key = random.Random(length).randbytes(length)
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@pytest.mark.parametrize("partitions", [1, 3, 8, 64])
def test_the_partition_is_the_clients_own(partitions):
    choose = DefaultPartitioner()
    everywhere = list(range(partitions))
    for number in range(200):
        key = f"agenda-{number}".encode()
        assert partition_of(key, partitions) == choose(key, everywhere, everywhere)
