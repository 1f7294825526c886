"""Share groups (KIP-932): a consumer on `confluent-kafka`, and their offsets on the brokers.

aiokafka knows no share groups. librdkafka, on which confluent-kafka is built, calls its share
groups a preview, and logs a warning with each consumer; the package is optional. Where a group
starts and what its lag is, is asked of the brokers with messages of our own (`protocol`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code

from pop_stream.kafka.hardening.internals import client_of
from pop_stream.kafka.protocol import (
    DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest,
)
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.records import ConsumedRecord, PlainRecord, TopicPartition
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

_ANSWER_TIMEOUT_S: Final = 10.0

_LOCK_SAFE_S: Final = 14.0
"""Brokers lock a record for 15 s at least (`group.share.min.record.lock.duration.ms`). Later an
acknowledgement proves nothing: the client reports success even if the record was delivered to
another consumer meanwhile."""

_NO_POLL_LIMIT_MS: Final = 86_400_000

T = TypeVar("T")

_log = logging.getLogger(__name__)


class MissingClientError(RuntimeError):
    """The optional client of share groups is not installed."""


class ShareGroupConsumer:
    """Polls records of one topic, which are delivered to nobody else until acknowledged.

    Works while entered. The client blocks and belongs to one thread, so it has one of its own.
    Records of a killed consumer are delivered to others at once, those of a frozen one after
    the group's `share.record.lock.duration.ms`, 30 s by default.

    Args:
        settings: Where the cluster is.
        topic: That exists.
        group: Its id, which must not be that of a consumer group.

    Raises:
        MissingClientError: If the package is not there.
        UnavailableError: If the client cannot be made.
    """

    def __init__(self, settings: Settings, *, topic: str, group: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="share-group")
        self._consumer = _consumer(settings, group)
        self._topic = topic
        self._empty_since_s: float | None = None
        self._held_since_s = 0.0

    async def __aenter__(self) -> Self:
        await self._call(lambda: self._consumer.subscribe([self._topic]))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the group; records that are not acknowledged go to others at once."""
        # In the same thread, so after a poll that may be running.
        closing = asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)
        await asyncio.wait([closing], timeout=_ANSWER_TIMEOUT_S)

    async def poll(self, within_s: float) -> Sequence[ConsumedRecord]:
        """The next record, if one comes in time; several only if one batch has several.

        Acknowledge all of them before the next call. After an empty result call again soon: the
        broker may lock a record for this consumer meanwhile.

        Raises:
            UnavailableError: If Kafka or the client fails; a new consumer must be made.
        """
        began_s = monotonic()
        messages = await self._call(lambda: [*self._consumer.poll(within_s)])
        # The lock may have begun right after the last poll that returned nothing.
        empty_since_s, self._empty_since_s = self._empty_since_s, None
        self._held_since_s = began_s if empty_since_s is None else empty_since_s
        if not messages:
            self._empty_since_s = began_s
        for message in messages:
            if (error := message.error()) is not None:
                raise UnavailableError(str(error))
        return [_record(message) for message in messages]

    async def acknowledge(
        self, accepted: Sequence[ConsumedRecord], released: Sequence[ConsumedRecord] = ()
    ) -> bool:
        """Acknowledge some records as done, and release others for redelivery.

        Returns:
            Whether the broker surely accepted all of it. If not, accepted records may be
            delivered to others: their locks had ended, or the answer was lost.
        """
        is_acknowledged = await self._call(lambda: self._acknowledge(accepted, released))
        held_s = monotonic() - self._held_since_s
        if is_acknowledged and held_s > _LOCK_SAFE_S:
            _log.warning(
                "records were held for %.1f s, so they may have been redelivered", held_s
            )
        return is_acknowledged and held_s <= _LOCK_SAFE_S

    def _acknowledge(
        self, accepted: Sequence[ConsumedRecord], released: Sequence[ConsumedRecord]
    ) -> bool:
        from confluent_kafka import AcknowledgeType, KafkaException  # noqa: PLC0415  # optional

        kinds = ((accepted, AcknowledgeType.ACCEPT), (released, AcknowledgeType.RELEASE))
        for records, kind in kinds:
            for one in records:
                self._consumer.acknowledge_offset(one.topic, one.partition, one.offset, kind)
        try:
            answers = self._consumer.commit_sync(_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            _log.warning("records were not acknowledged: %s", error)
            return False
        refused = [error for error in answers.values() if error is not None]
        if refused:
            _log.info("records were held for too long: %s", refused[0])
            return False
        # The client does not report records from a broker that is gone.
        answered = {(one.topic, one.partition) for one in answers}
        return all((one.topic, one.partition) in answered for one in (*accepted, *released))

    def _close(self) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415  # optional

        try:
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            _log.warning("the share group was not left: %s", error)

    async def _call(self, function: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException  # noqa: PLC0415  # optional

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, function)
        except (KafkaException, RuntimeError) as error:  # its errors of state are RuntimeErrors
            raise UnavailableError(repr(error)) from error


def _consumer(settings: Settings, group: str) -> "ShareConsumer":
    try:
        from confluent_kafka import KafkaException, ShareConsumer  # noqa: PLC0415  # optional
    except ImportError:
        msg = (
            f"share group {group} needs the package confluent-kafka: "
            "pip install 'pop-stream[share]'"
        )
        raise MissingClientError(msg) from None
    try:
        return ShareConsumer(_arguments(settings, group))
    except KafkaException as error:
        raise UnavailableError(repr(error)) from error


def _arguments(settings: Settings, group: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_bootstrap,
        "security.protocol": settings.kafka_security_protocol,
        "client.id": f"{settings.topic_prefix}puller",
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        # Exact for batches of one record; of a larger batch all records come at once.
        "max.poll.records": 1,
        # A puller at capacity does not poll, and must not be expelled for it.
        "max.poll.interval.ms": _NO_POLL_LIMIT_MS,
        "socket.timeout.ms": int(_ANSWER_TIMEOUT_S * 1000),
        "logger": logging.getLogger("confluent_kafka"),
    }
    if settings.kafka_ca_file is not None:
        arguments["ssl.ca.location"] = str(settings.kafka_ca_file)
    if settings.kafka_security_protocol.startswith("SASL"):
        password = settings.kafka_password
        arguments |= {
            "sasl.mechanism": settings.kafka_sasl_mechanism,
            "sasl.username": settings.kafka_username or "",
            "sasl.password": password.get_secret_value() if password else "",
        }
    return arguments


def _record(message: Any) -> ConsumedRecord:  # noqa: ANN401  # its types allow None anywhere
    return PlainRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp=message.timestamp()[1],
        headers=tuple(message.headers() or ()),
    )


async def start_at_earliest(admin: AIOKafkaAdminClient, group: str) -> None:
    """Have a share group start at the first record of a topic that is new to it.

    Otherwise it starts with records written after its first member joined. A second call
    changes nothing.

    Raises:
        KafkaError: If the broker has no share groups, or does not permit it.
    """
    request = IncrementalAlterConfigsRequest(group, "share.auto.offset.reset", "earliest")
    client = client_of(admin)
    response = await client.send(client.get_random_node(), request)
    for code, message, _, _ in response.responses:
        if code:
            msg = f"share group {group}: {message}"
            raise for_code(code)(msg)


class ShareGroupOffset(NamedTuple):
    """The position of a share group in a partition, as the broker counts it, a little late.

    Attributes:
        start: The first record that may not be acknowledged; it may lag behind.
        lag: How many records from there on are not acknowledged, wherever they lie. Some that
            were acknowledged together with others may count until the next acknowledgement.
    """

    start: int
    lag: int


async def fetch_share_offsets(
    admin: AIOKafkaAdminClient, node: int, groups: Sequence[str]
) -> Mapping[str, Mapping[TopicPartition, ShareGroupOffset]]:
    """The positions of share groups in the partitions that they have begun to read.

    Args:
        admin: Started.
        node: Coordinator of the groups.
        groups: Their ids; groups that the node cannot describe are absent from the result.
    """
    response = await client_of(admin).send(node, DescribeShareGroupOffsetsRequest(groups))
    return {
        group: _share_offsets(topics)
        for group, topics, code, _, _ in response.groups
        if not code
    }


def _share_offsets(topics: Sequence[Any]) -> dict[TopicPartition, ShareGroupOffset]:
    return {
        TopicPartition(name, partition): ShareGroupOffset(start, lag)
        for name, _, partitions, _ in topics
        for partition, start, _, lag, code, _, _ in partitions
        if not code and start >= 0
    }
