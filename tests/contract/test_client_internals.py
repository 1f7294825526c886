"""What the hardening assumes of aiokafka's private members, held against the pinned version.

A test that fails here after an upgrade names the member that changed. Read the client's new
source and the wrapper in `pop_stream/kafka/hardening/`; only then write down what it is now.
"""

import ast
import hashlib
import inspect
import sys
import textwrap
from importlib.metadata import version

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.message_accumulator import MessageBatch
from aiokafka.producer.sender import Sender
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from pop_stream.kafka.hardening import internals

PINNED = "0.14.0"

ATTRIBUTES = {
    AIOKafkaConsumer: ("_client", "_fetcher", "_coordinator", "_subscription", "_group_id"),
    AIOKafkaAdminClient: ("_client",),
    AIOKafkaProducer: ("_sender",),
    AIOKafkaClient: ("_request_timeout_ms", "_conns", "_md_update_fut"),
    AIOKafkaConnection: ("_requests", "_request_timeout"),
    Fetcher: (
        "_client",
        "_fetch_max_wait_ms",
        "_prefetch_backoff",
        "_fetcher_timeout",
        "_in_flight",
        "_wait_consume_future",
        "_fetch_task",
    ),
    FetchRequest: ("_max_wait_ms", "_min_bytes", "_max_bytes", "_isolation_level"),
    Sender: ("_muted_partitions", "_in_flight"),
    MessageBatch: ("_ctime",),
}
"""Set by the class itself, on each instance."""

METHODS = {
    AIOKafkaAdminClient._send_request_to_node: "3a09b5921d6b",
    AIOKafkaClient._get_conn: "1eaeaab22404",
    AIOKafkaClient.send: "fb1726e3ed8e",
    AIOKafkaClient.close: "ded309a644a5",
    AIOKafkaClient.get_random_node: "2bd095d67033",
    AIOKafkaConsumer.start: "5ba1baa38f62",
    AIOKafkaConsumer.stop: "bf02b37ed4aa",
    ClusterMetadata.add_listener: "dc7e22c793fb",
    ClusterMetadata.leader_for_partition: "39e78e751973",
    Fetcher._fetch_requests_routine: "12dc901a1e4a",
    Fetcher._get_actions_per_node: "fd175a69d8d4",
    Fetcher._proc_fetch_request: "ace04969424f",
    Fetcher._notify: "b0c2aa8e3cc1",
    GroupCoordinator._do_commit_offsets: "c1259c2b2068",
    Sender._send_produce_req: "5fbb5b444b0f",
    Sender._sender_routine: "c07b5ec56875",
    SubscriptionState.partitions_auto_assigned: "440fc8148cc1",
}
"""Wrapped, called or relied upon: of each, the beginning of the digest of its source."""


def digest_of(method) -> str:
    source = textwrap.dedent(inspect.getsource(method))
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def set_attributes(owner) -> set[str]:
    """The names that methods of a class set on `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def test_the_pinned_version_is_installed():
    assert version("aiokafka") == PINNED


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in ATTRIBUTES.items() for name in names]
)
def test_an_attribute_is_there(owner, name):
    assert name in set_attributes(owner)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.__qualname__)
def test_a_method_is_as_it_was_read(method):
    assert digest_of(method) == METHODS[method]


def test_every_private_member_that_is_touched_is_held_against_the_client():
    tree = ast.parse(inspect.getsource(internals))
    touched = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    known = {name for names in ATTRIBUTES.values() for name in names}
    assert known <= touched <= known | {one.__name__ for one in METHODS}


def test_batches_are_read_by_names_that_can_be_replaced():
    fetching = inspect.getsource(Fetcher._proc_fetch_request)
    assert "MemoryRecords(part_data[-1])" in fetching
    assert "next_batch.next_offset" in inspect.getsource(PartitionRecords._unpack_records)
    decoders = vars(sys.modules[DefaultRecordBatch.__module__])
    assert {"gzip_decode", "snappy_decode", "lz4_decode", "zstd_decode"} <= decoders.keys()
    assert MemoryRecords.__module__ == "aiokafka.record._crecords.memory_records"
