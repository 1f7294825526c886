"""The record of an insight: everything its rounds were decided from, read whole."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.checkpoint import RoundCheckpoint
from pop_stream.core.definitions.definition_records import decode_definition
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.errors import NotFoundError, UnreadableRecordError
from pop_stream.core.events import InsightPlaced, RoundDecided, decode_ready, value_of
from pop_stream.core.simulation.beginnings import Beginning, beginnings
from pop_stream.core.simulation.replay import last_words
from pop_stream.core.simulation.stage import Input
from pop_stream.settings import Settings

_DECISION = msgspec.json.Decoder(RoundDecided | RoundCheckpoint)


@dataclass(frozen=True, slots=True)
class History:
    """What is on record of one insight.

    Attributes:
        inputs: Its events on `pop.ready`, by offset.
        decisions: Its rounds that counted, in order.
        versions: Definitions by version, as far as compaction left them.
        beginnings: States that rounds can be chosen again from, besides round 1's.
    """

    inputs: Sequence[Input]
    decisions: Sequence[RoundDecided]
    versions: Sequence[Definitions]
    beginnings: Sequence[Beginning] = ()

    def definitions_at(self, version: int) -> Definitions:
        """The newest definitions that are not newer than this version."""
        known = [one for one in self.versions if one.version <= version]
        return known[-1] if known else Definitions()


async def read_history(settings: Settings, insight_id: str) -> History:
    """Read all that the topics still hold about an insight.

    Raises:
        NotFoundError: If no round of it is on record.
    """
    topics = Topics(settings.topic_prefix)
    # Named at the start, the topic's partitions are known; read they are one by one.
    consumer = clients.consumer(settings, topics.decisions, client_id="history", group_id=None)
    async with consumer:
        partitions = sorted(consumer.partitions_for_topic(topics.decisions) or ())
        consumer.unsubscribe()
        records = [
            record
            for partition in partitions
            async for record in _decisions(consumer, topics, partition, insight_id)
        ]
        decisions = [one for one in records if isinstance(one, RoundDecided)]
        if not decisions:
            kind = "round on record of an insight"
            raise NotFoundError(kind, insight_id)
        partition = decisions[-1].partition
        inputs = [one async for one in _inputs(consumer, topics, insight_id, partition)]
        versions = [one async for one in _versions(consumer, topics)]
    rounds = last_words(decisions)
    parts = [one for one in records if isinstance(one, RoundCheckpoint)]
    known = beginnings(parts, _placings(inputs), rounds)
    return History(inputs, rounds, versions, known)


def _placings(inputs: Sequence[Input]) -> Iterator[tuple[int, InsightPlaced]]:
    for one in inputs:
        if isinstance(one.event, InsightPlaced):
            yield one.offset, one.event


async def _decisions(
    consumer: AIOKafkaConsumer, topics: Topics, partition: int, insight_id: str
) -> AsyncIterator[RoundDecided | RoundCheckpoint]:
    async for record in _records(consumer, TopicPartition(topics.decisions, partition)):
        if record.key == insight_id.encode():
            yield _DECISION.decode(record.value)


async def _inputs(
    consumer: AIOKafkaConsumer, topics: Topics, insight_id: str, partition: int
) -> AsyncIterator[Input]:
    async for record in _records(consumer, TopicPartition(topics.ready, partition)):
        try:
            ready_events = decode_ready(value_of(record))
        except UnreadableRecordError:
            continue
        for event in ready_events:
            if event.insight_id == insight_id:
                yield Input(record.offset, event, record.timestamp / 1000)


async def _versions(consumer: AIOKafkaConsumer, topics: Topics) -> AsyncIterator[Definitions]:
    current = Definitions()
    async for record in _records(consumer, TopicPartition(topics.definitions, 0)):
        key = (record.key or b"").decode(errors="replace")
        try:
            updated = current.updated(key, decode_definition(key, record.value))
        except UnreadableRecordError:
            continue
        current = replace(updated, version=record.offset + 1)
        yield current


async def _records(
    consumer: AIOKafkaConsumer, partition: TopicPartition
) -> AsyncIterator[ConsumerRecord]:
    """All records of a partition up to its present end."""
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    end = (await consumer.end_offsets([partition]))[partition]
    while await consumer.position(partition) < end:
        fetched = await consumer.getmany(partition, timeout_ms=500)
        for record in fetched.get(partition, ()):
            yield record
