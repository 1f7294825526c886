"""Producers, consumers and admin clients, with the settings that all parts share.

Whoever needs a client gets it from here: with the cluster's addresses and security, timeouts
that fit each other, lz4 at its fastest level, and hardened (`hardening`).
"""

import asyncio
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, TypeAlias

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, codec
from aiokafka import TopicPartition as _NativePartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from pop_stream.kafka import group_members
from pop_stream.kafka.hardening import broker_timeouts
from pop_stream.kafka.hardening.cancellation import shield_bootstrap, shield_until_answered
from pop_stream.kafka.hardening.commit_guard import guard_commits
from pop_stream.kafka.hardening.fetcher import (
    harden_fetcher,
    stop_fetching,
    use_adaptive_fetch_wait,
)
from pop_stream.kafka.hardening.internals import client_of, group_of
from pop_stream.kafka.topics import MIN_MAX_MESSAGE_BYTES
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

COMPRESSION: Final = "lz4"

_COMPRESSION_LEVEL: Final = 1
"""The client's own is 9: seven times the processor time, for a tenth fewer bytes."""


def compress_fast() -> None:
    """Have all producers of this process compress at that level; a second call changes nothing.

    The client has no setting for it. The level says how long the encoder searches for repeats;
    the format is the same, and any reader reads it.
    """
    builder = sys.modules[DefaultRecordBatchBuilder.__module__]
    builder.lz4_encode = _encode  # type: ignore[attr-defined]  # by the module's own name


def _encode(payload: bytes) -> bytes:
    encoded: bytes = codec.lz4_encode(payload, level=_COMPRESSION_LEVEL)
    return encoded


PARTITION_BYTES: Final = 4 * 1024 * 1024
FETCH_BYTES: Final = 32 * 1024 * 1024
"""The most that one answer of a broker holds, of a partition and in all."""

METADATA_AGE_MS: Final = 30_000
"""How old metadata may become; a topic that was missing is found no sooner."""

_POLL_MS: Final = 10_000
_RETRY_AFTER_S: Final = 1.0


_log = structlog.get_logger()

Offset = int | tuple[int, str]
"""To commit: the offset to read next, alone or with metadata for whoever looks it up."""


RebalanceListener: TypeAlias = ConsumerRebalanceListener
"""Base of what is called when a group moves partitions; the client insists on its own class."""

RoundRobinAssignor = RoundRobinPartitionAssignor
"""Spreads partitions over the members of a group; the client's sticky one shares state."""

KafkaProducer: TypeAlias = AIOKafkaProducer
KafkaAdmin: TypeAlias = AIOKafkaAdminClient


class KafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped here
    """The client's consumer, hardened, and with our own pairs as partitions.

    Made by `consumer`. The partitions that it returns equal ours, whatever their class.
    """

    before_start: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        """Start; left before it has started, it leaves no connection open.

        Cancelled while it starts, the client would; so starting may end first, for seconds at
        most, as the broker may be down.
        """
        try:
            await shield_until_answered(self.start())
        except BaseException:
            await shield_until_answered(self.stop())
            raise
        return self

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit these offsets, or those of all that was read."""
        checked = offsets and {_NativePartition(*tp): at for tp, at in offsets.items()}
        await super().commit(checked)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Mapping[TopicPartition, Sequence[ConsumedRecord]]:
        """What comes of these partitions, or of all, within the time; `{}` if nothing does."""
        fetched: Mapping[TopicPartition, Sequence[ConsumedRecord]] = await super().getmany(
            *_native(partitions), timeout_ms=timeout_ms, max_records=max_records
        )
        return fetched

    def pause(self, *partitions: TopicPartition) -> None:
        """Fetch nothing of these partitions until they are resumed."""
        super().pause(*_native(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch of these partitions again."""
        super().resume(*_native(partitions))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Read on from where these partitions start."""
        return bool(await super().seek_to_beginning(*_native(partitions)))

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Read on from where these partitions end."""
        return bool(await super().seek_to_end(*_native(partitions)))

    async def start(self) -> None:
        """Join the group, or connect; to be called once."""
        if self.before_start is not None:
            await self.before_start()
        await super().start()
        harden_fetcher(self)
        guard_commits(self)
        if group_of(self) is not None:
            use_adaptive_fetch_wait(self)

    async def stop(self) -> None:
        """Leave the group and close connections; nothing happens the second time."""
        await stop_fetching(self, super().stop)


def _native(partitions: Iterable[TopicPartition]) -> Iterator[Any]:
    """As the client's own class, which it insists on in some of its methods."""
    return (_NativePartition(*one) for one in partitions)


async def poll_forever(
    consumer: KafkaConsumer, *, what: str
) -> AsyncIterator[Sequence[ConsumedRecord]]:
    """Batches of what a started consumer reads, until cancelled; errors of Kafka are logged.

    An error ended the reader's task, nobody would notice that nothing is read any more.

    Args:
        consumer: Of a topic that is followed for as long as the process runs.
        what: The name of what is read, for the log.

    Yields:
        Records of all partitions; an empty batch now and then if there are none.
    """
    while True:
        try:
            fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        except (KafkaError, OSError) as error:
            _log.warning(f"{what}.interrupted", error=repr(error))
            await asyncio.sleep(_RETRY_AFTER_S)
            continue
        yield [record for records in fetched.values() for record in records]


_FETCH_WAIT_MS: Final = 2_000
LONG_FETCH_WAIT_MS: Final = 10_000
"""How long a broker may hold a fetch that finds nothing; the first record ends the wait.

Other requests on the connection wait as long. So it is long only for readers that keep their
partitions and ask nothing else; members of a group have `use_adaptive_fetch_wait`."""


def connection(settings: Settings) -> dict[str, Any]:
    """The arguments by which any client of aiokafka reaches the cluster."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap,
        "security_protocol": settings.kafka_security_protocol,
        "metadata_max_age_ms": METADATA_AGE_MS,
    }
    if settings.kafka_security_protocol.endswith("SSL"):
        ca_file = settings.kafka_ca_file
        arguments["ssl_context"] = create_ssl_context(cafile=str(ca_file) if ca_file else None)
    if settings.kafka_security_protocol.startswith("SASL"):
        password = settings.kafka_password
        arguments |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_username,
            "sasl_plain_password": password.get_secret_value() if password else None,
        }
    return arguments


def _harden(client: AIOKafkaClient, settings: Settings, *, fetch_wait_ms: int = 0) -> None:
    shield_bootstrap(client)
    broker_timeouts.install_broker_timeouts(
        client, connection(settings), fetch_wait_ms=fetch_wait_ms
    )


def producer(settings: Settings, *, client_id: str, linger_ms: int = 0) -> KafkaProducer:
    """An idempotent producer with acks=all, not started; the caller starts and stops it."""
    compress_fast()
    made = AIOKafkaProducer(
        **connection(settings),
        client_id=f"{settings.topic_prefix}{client_id}",
        acks="all",
        enable_idempotence=True,
        compression_type=COMPRESSION,
        linger_ms=linger_ms,
        max_batch_size=256 * 1024,
        max_request_size=MIN_MAX_MESSAGE_BYTES,
        request_timeout_ms=10_000,
    )
    _harden(made.client, settings)
    return made


def consumer(
    settings: Settings, *topics: str, client_id: str, group_id: str | None, **overrides: object
) -> KafkaConsumer:
    """A consumer, not started, that commits only by `commit`; the caller starts and stops it.

    One with a group first evicts a dead process of the same name (`evict_own_predecessor`).

    Args:
        settings: Where the cluster is.
        topics: What to subscribe to; none to assign or subscribe later.
        client_id: Shown in the broker's logs and metrics.
        group_id: None for a reader without a group, which cannot commit.
        overrides: Further arguments of aiokafka's consumer.
    """
    session_ms = _milliseconds(settings.session_timeout)
    client_name = f"{settings.topic_prefix}{client_id}"
    if group_id is not None:
        client_name = group_members.member_client_id(settings, client_name)
    arguments: dict[str, Any] = {
        **connection(settings),
        "client_id": client_name,
        "group_id": group_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": session_ms // 3,
        "max_poll_interval_ms": 300_000,
        "fetch_max_wait_ms": _FETCH_WAIT_MS,
        "max_partition_fetch_bytes": PARTITION_BYTES,
        "fetch_max_bytes": FETCH_BYTES,
    }
    arguments |= overrides
    made = KafkaConsumer(*topics, **arguments)
    fetch_wait_ms = arguments["fetch_max_wait_ms"]
    _harden(client_of(made), settings, fetch_wait_ms=fetch_wait_ms)
    if group_id is not None:
        made.before_start = partial(evict_own_predecessor, settings, group_id, client_name)
    return made


async def evict_own_predecessor(settings: Settings, group: str, client_name: str) -> None:
    """Evict the process that had this one's name before; without a name nothing happens."""
    if settings.instance is not None:
        await group_members.evict_predecessor(
            admin(settings, client_id="eviction"), group, client_name
        )


def admin(settings: Settings, *, client_id: str) -> KafkaAdmin:
    """An admin client, not started; the caller starts and closes it."""
    made = AIOKafkaAdminClient(
        **connection(settings),
        client_id=f"{settings.topic_prefix}{client_id}",
        request_timeout_ms=15_000,
    )
    _harden(client_of(made), settings)
    return made


async def is_serving(bootstrap: str) -> bool:
    """Whether a broker without security knows its cluster, and who coordinates groups."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap, request_timeout_ms=2_000)
    shield_bootstrap(client)
    try:
        await client.bootstrap()
        if client.get_random_node() is None:
            return False  # it answers before it knows of any broker
        await client.coordinator_lookup(CoordinationType.GROUP, "pop-stream-embedded")
    except (KafkaError, OSError):
        return False
    finally:
        await client.close()
    return True


def _milliseconds(span: timedelta) -> int:
    return int(span / timedelta(milliseconds=1))
