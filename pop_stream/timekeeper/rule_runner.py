"""Runs rules: reads each one's topic in a consumer group of its own, and submits what fits.

Records that a rule is not yet ready for, as its rate is used up or it is paused, wait in the
topic, so none is dropped, and the lag of the group `rule.<id>` shows how many there are. One
rule does not hold up another. A batch's submissions are acknowledged before its offsets are
committed: after a crash they are submitted again, and the series drops them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter, commit
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.rule import Rule
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.rules import RuleFiring, SourceRecord, match
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings
from pop_stream.timekeeper.submissions import OccurrenceRecords, Sourced

_POLL_S: Final = 0.25
_RETRY_AFTER_S: Final = 5.0
_MAX_RECORDS: Final = 500
_BATCH_S: Final = 5.0
"""Most seconds' worth of firings in one batch, at a rule's rate."""

_log = structlog.get_logger()


class RuleRunner:
    """Runs all rules that are defined and not paused, while `run` runs.

    Args:
        settings: Where the cluster is.
        publisher: Of submissions and refusals.
        definitions: Followed.
        clock: Dates refusals.
        admission: The rules for all submissions.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        admission: Admission,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._records = OccurrenceRecords(settings, publisher, definitions, admission)
        self._running: dict[Rule, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run rules until `stop`; what is not committed by then is read again."""
        known: Mapping[str, Rule] = {}
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                rules = self._definitions.current.rules
                if rules is not known:
                    await self._take_up(rules.values(), tasks)
                    known = rules
                await _wait(stop, _POLL_S)
            for stopping, _ in self._running.values():
                stopping.set()

    async def _take_up(self, rules: Iterable[Rule], tasks: asyncio.TaskGroup) -> None:
        wanted = {one for one in rules if not one.paused and self._may_read(one)}
        gone = [one for one in self._running if one not in wanted]
        ended = [self._running.pop(one) for one in gone]
        for stopping, _ in ended:
            stopping.set()
        await asyncio.gather(*(task for _, task in ended))
        for rule in wanted - self._running.keys():
            stopping = asyncio.Event()
            task = tasks.create_task(self._run_rule(rule, stopping))
            self._running[rule] = stopping, task

    def _may_read(self, rule: Rule) -> bool:
        """Topics of the service itself are nobody's source: a rule would feed itself."""
        is_ours = rule.topic.startswith(self._settings.topic_prefix)
        if is_ours:
            _log.error("rule.topic_refused", rule=rule.id, topic=rule.topic)
        return not is_ours

    async def _run_rule(self, rule: Rule, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._read(rule, stop)
            except KafkaError as error:
                _log.warning("rule.failed", rule=rule.id, error=repr(error))
                await _wait(stop, _RETRY_AFTER_S)

    async def _read(self, rule: Rule, stop: asyncio.Event) -> None:
        group = Topics(self._settings.topic_prefix).group(f"rule.{rule.id}")
        consumer = clients.consumer(self._settings, client_id=f"rule.{rule.id}", group_id=group)
        async with consumer:
            listener = _Positions(consumer, rule)
            consumer.subscribe([rule.topic], listener=listener)
            commits = OffsetCommitter(consumer)
            _log.info("rule.started", rule=rule.id, topic=rule.topic)
            while not stop.is_set():
                rate = rule.max_per_s * _share(consumer, rule.topic)
                most = max(1, min(_MAX_RECORDS, int(rate * _BATCH_S)))
                fetched = await consumer.getmany(
                    timeout_ms=int(_POLL_S * 1000), max_records=most
                )
                if listener.changed:
                    await listener.begin()
                    continue
                records = [one for found in fetched.values() for one in found]
                fired = await self._fire(rule, records)
                for partition, found in fetched.items():
                    await commits.mark_processed({partition: found[-1].offset + 1})
                if not fetched:
                    await commits.flush()
                if fired:
                    await _wait(stop, fired / rate)
            await commits.flush()

    async def _fire(self, rule: Rule, records: Sequence[ConsumedRecord]) -> int:
        """Submit for those that fit; how many these are."""
        found = [match(rule, _source(one)) for one in records]
        firings = [one for one in found if isinstance(one, RuleFiring)]
        if firings:
            sourced = map(Sourced.of_firing, firings)
            made = await self._records.of_all(sourced, self._clock.now())
            await publish_until_acknowledged(self._publisher, made)
        if records:
            _log.info(
                "rule.read",
                rule=rule.id,
                fired=len(firings),
                filtered=found.count("filtered"),
                unreadable=found.count("unreadable"),
            )
        return len(firings)


class _Positions(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Where a rule begins in partitions that it has never read.

    Attributes:
        changed: Whether partitions came since `begin`.
    """

    def __init__(self, consumer: KafkaConsumer, rule: Rule) -> None:
        self._consumer = consumer
        self._rule = rule
        self.changed = False

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Whoever is next begins where offsets were committed."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """The loop calls `begin` before it handles another record."""
        self.changed = True

    async def begin(self) -> None:
        """Go to what is committed; where nothing is, commit where the rule begins.

        So a crash before the first record does not lose what came since.
        """
        self.changed = False
        first: dict[TopicPartition, int] = {}
        for native in self._consumer.assignment():
            partition = TopicPartition(native.topic, native.partition)
            at = await self._consumer.committed(native)
            if at is None:
                if self._rule.start == "latest":
                    found = await self._consumer.end_offsets([native])
                else:
                    found = await self._consumer.beginning_offsets([native])
                at = first[partition] = found[native]
            self._consumer.seek(native, at)
        if first:
            await commit(self._consumer, first)


def _share(consumer: KafkaConsumer, topic: str) -> float:
    """Which part of a rule's rate is this process's: that of the partitions it has."""
    there_are = len(consumer.partitions_for_topic(topic) or ())
    return max(1, len(consumer.assignment())) / max(1, there_are)


def _source(record: ConsumedRecord) -> SourceRecord:
    return SourceRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers or ()),
    )


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
