"""Definitions on `pop.definitions`: read from the beginning, then followed; their records."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, Self

import structlog

from pop_stream.background import ExitReason, background
from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.hardening.cancellation import shield_until_answered
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.api_keys import ApiKey
from pop_stream.model.definitions import (
    Definition,
    DefinitionChange,
    Definitions,
    Insight,
    decode_api_key,
    decode_definition,
    definition_key,
    encode_definition,
    is_api_key,
)
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.ids import InsightId
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

DEFINITION_VERSION_HEADER: Final = "version"
"""Header with the definition's version, by which a repeat of an older version is recognised."""

_READ_TIMEOUT_S: Final = 30.0
_FIRST_POLL_MS: Final = 1_000
_MAX_VERSION_DIGITS: Final = 19

_log = structlog.get_logger()


class DefinitionFollower:
    """The port `FollowedDefinitions`: complete when entered, then a moment behind the topic.

    Works while entered. Entering fails with UnavailableError if the topic is missing or cannot
    be read within half a minute. A record that cannot be read leaves the definition before it
    in force; an interruption of Kafka leaves everything in force.
    """

    def __init__(self, settings: Settings, *, client_id: str) -> None:
        self._topic = Topics(settings.topic_prefix).definitions
        self._consumer = clients.consumer(
            settings,
            client_id=f"{client_id}-definitions",
            group_id=None,
            fetch_max_wait_ms=clients.LONG_FETCH_WAIT_MS,
        )
        self._current = Definitions()
        self._versions: dict[str, int] = {}
        self._versions_by_key: dict[str, int] = {}
        self._keys: dict[str, ApiKey] = {}
        self._read_up_to = 0
        self._background = AsyncExitStack()
        self._settings, self._client_id = settings, client_id
        self._end_consumer: asyncio.Task[KafkaConsumer] | None = None

    @property
    def current(self) -> Definitions:
        """The definitions in force."""
        return self._current

    @property
    def versions_by_key(self) -> Mapping[str, int]:
        """By key, the version of its last record, deletions too; 0 without a version."""
        return self._versions_by_key

    @property
    def read_up_to(self) -> int:
        """See the port."""
        return self._read_up_to

    async def end_offset(self) -> int:
        """See the port."""
        if self._end_consumer is None or (
            self._end_consumer.done() and self._end_consumer.exception()
        ):
            self._end_consumer = asyncio.create_task(self._start_end_consumer())
        partition = TopicPartition(self._topic, 0)
        try:
            end_consumer = await asyncio.shield(self._end_consumer)
            ends = await shield_until_answered(end_consumer.end_offsets([partition]))
        except (KafkaError, OSError) as error:
            msg = f"the end of {self._topic} is unknown: {error!r}"
            raise UnavailableError(msg) from error
        return int(ends[partition])

    def api_key(self, key_id: str) -> ApiKey | None:
        """An API key by its last record, None without one; for when Postgres is down."""
        return self._keys.get(key_id)

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await self._consumer.start()
                await self._read_all()
        except TimeoutError:
            await self._consumer.stop()
            msg = f"topic {self._topic} could not be read; has `pop-stream migrate` been run?"
            raise UnavailableError(msg) from None
        except BaseException:
            await self._consumer.stop()
            raise
        following = background(definitions_follower=self._follow())
        await self._background.enter_async_context(following)
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        try:
            await self._background.__aexit__(*reason)
        finally:
            await self._stop_consumers()

    async def _stop_consumers(self) -> None:
        await self._consumer.stop()
        if self._end_consumer is not None:
            for end_consumer in await asyncio.gather(
                self._end_consumer, return_exceptions=True
            ):
                if isinstance(end_consumer, KafkaConsumer):
                    await end_consumer.stop()

    async def _start_end_consumer(self) -> KafkaConsumer:
        # Over a connection of its own: the reader's has a fetch that the broker may hold.
        end_consumer = clients.consumer(
            self._settings, client_id=f"{self._client_id}-definitions-end", group_id=None
        )
        try:
            await end_consumer.start()
        except BaseException:
            await end_consumer.stop()
            raise
        return end_consumer

    async def _read_all(self) -> None:
        partition = TopicPartition(self._topic, 0)
        while self._topic not in await self._consumer.topics():  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.2)
        self._consumer.assign([partition])
        end = (await self._consumer.end_offsets([partition]))[partition]
        while await self._consumer.position(partition) < end:
            fetched = await self._consumer.getmany(partition, timeout_ms=_FIRST_POLL_MS)
            self._apply(fetched.get(partition, ()))

    async def _follow(self) -> None:
        async for records in clients.poll_forever(self._consumer, what="definitions"):
            self._apply(records)

    def _apply(self, records: Sequence[ConsumedRecord]) -> None:
        changes: list[DefinitionChange] = []
        newest = self._current.version
        for record in records:
            self._read_up_to = record.offset + 1
            key = (record.key or b"").decode(errors="replace")
            version = self._versions_by_key[key] = header_version(
                record, DEFINITION_VERSION_HEADER
            )
            if version and version < self._versions.get(key, 0):
                continue  # a repeat, by a process that did not know it was published
            try:
                if is_api_key(key):  # no definition, so nothing in force changes with it
                    self._keep_api_key(key, record)
                else:
                    changes.append((key, decode_definition(key, record.value), version))
                    newest = record.offset + 1
            except UnreadableRecordError as error:
                # The old definition stays in force: a bad edit must not stop an insight.
                _log.error("definition.refused", key=key, reason=str(error))
                skip_unreadable(record, error)
                continue
            self._versions[key] = version
        if changes:
            self._current = replace(self._current.with_changes(changes), version=newest)

    def _keep_api_key(self, key: str, record: ConsumedRecord) -> None:
        if known := decode_api_key(key, record.value):
            self._keys[known.id] = known
        else:
            self._keys.pop(key.partition("/")[2], None)


def definition_record(
    topics: Topics, key: str, body: bytes | None, *, version: int = 0
) -> Record:
    """The record that puts a definition in force; without a body, the one that deletes it."""
    headers = [(DEFINITION_VERSION_HEADER, str(version).encode())] if version else []
    return Record(topics.definitions, key.encode(), body, headers=headers)


def header_version(record: ConsumedRecord, header: str) -> int:
    """The version in a record's header; 0 without a readable one, as in a record by hand."""
    for name, value in record.headers or ():
        if name == header and value and value.isdigit() and len(value) < _MAX_VERSION_DIGITS:
            return int(value)
    return 0


async def publish_definitions(
    publisher: Publisher, topics: Topics, wanted: Sequence[Definition], current: Definitions
) -> list[str]:
    """Publish those definitions that differ from the ones in force; returns their keys.

    Raises:
        ValueError: If an insight would change its pool or its group type, as its backlog and
            its emitted agendas could not move with it.
    """
    in_force: set[Definition] = {
        *current.customers.values(),
        *current.insights.values(),
        *current.pools.values(),
    }
    for one in wanted:
        _reject_fixed_fields(one, current)
    changed = [one for one in wanted if one not in in_force]
    await publisher.publish(
        [
            definition_record(topics, definition_key(one), encode_definition(one))
            for one in changed
        ]
    )
    return [definition_key(one) for one in changed]


def _reject_fixed_fields(wanted: Definition, current: Definitions) -> None:
    known = current.insights.get(InsightId(wanted.id))
    if not isinstance(wanted, Insight) or known is None:
        return
    for name in ("pool", "group_type"):
        before, after = getattr(known, name), getattr(wanted, name)
        if before != after:
            msg = (
                f"insights.{wanted.id}.{name} cannot change from {before!r} to {after!r}: "
                "define a new insight with it and move the mappers to that"
            )
            raise ValueError(msg)
