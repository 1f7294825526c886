"""Runs rules: reads each one's source in a consumer group of its own, and acts on what fits.

Records that a rule is not yet ready for, as its rate is used up or it is paused, wait in the
topic, so none is dropped, and the lag of the group `rule.<id>` shows how many there are. One
rule does not hold up another. A batch's submissions are acknowledged before its offsets are
committed: after a crash they are submitted again, and the series drops them.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Final

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter, commit
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener
from pop_stream.kafka.dead_letters import dead_letter
from pop_stream.kafka.definitions import DEFINITION_VERSION_HEADER, header_version
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.state_rows import StateRows
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import SubmissionError, UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.rules import POSITION_HEADER, RuleActed, RuleState, SignalGiven
from pop_stream.model.rule import Rule, RuleEvent
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.rules import (
    RuleFiring,
    SourceRecord,
    definition_change,
    key_place,
    match,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings
from pop_stream.timekeeper.rule_counts import RuleCounts, RuleMetrics, RuleOutcome
from pop_stream.timekeeper.submissions import OccurrenceRecords, Sourced

PART: Final = "rules"

_POLL_S: Final = 0.25
_RETRY_AFTER_S: Final = 5.0
_LOOK_FOR_TOPIC_S: Final = 10.0
_ROWS_EVERY_S: Final = 1.0
_MAX_RECORDS: Final = 500
_IDLE_SINCE_S: Final = 60.0
_BATCH_S: Final = 5.0
"""Most seconds' worth of firings in one batch, at a rule's rate."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePorts:
    """What rules are run with.

    Attributes:
        settings: Where the cluster is.
        publisher: Of submissions, refusals and rows.
        definitions: Followed.
        clock: Dates refusals.
        admission: The rules for all submissions.
        states: The rows of `pop.rule-states`; open for as long as rules run.
        metrics: Counts records.
    """

    settings: Settings
    publisher: Publisher
    definitions: DefinitionSource
    clock: Clock
    admission: Admission
    states: StateRows[RuleState]
    metrics: RuleMetrics


class RuleRunner:
    """Runs all rules that are defined and not paused, while `run` runs.

    Args:
        ports: What it works with.
    """

    def __init__(self, ports: RulePorts) -> None:
        self._ports = ports
        self._running: dict[Rule, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run rules until `stop`; what is not committed by then is read again."""
        known: Mapping[str, Rule] | None = None
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                rules = self._ports.definitions.current.rules
                if rules is not known:
                    await self._take_up(rules, tasks)
                    known = rules
                await wait_until_set(stop, _POLL_S)
            for stopping, _ in self._running.values():
                stopping.set()

    async def _take_up(self, rules: Mapping[str, Rule], tasks: asyncio.TaskGroup) -> None:
        wanted = {one for one in rules.values() if not one.paused}
        gone = [one for one in self._running if one not in wanted]
        ended = [self._running.pop(one) for one in gone]
        for stopping, _ in ended:
            stopping.set()
        await asyncio.gather(*(task for _, task in ended))
        await self._forget(rules)
        for rule in wanted - self._running.keys():
            stopping = asyncio.Event()
            task = tasks.create_task(RuleReader(rule, self._ports).run(stopping))
            self._running[rule] = stopping, task

    async def _forget(self, rules: Mapping[str, Rule]) -> None:
        """Remove the rows of rules that are not defined any more, whoever wrote them."""
        topics = Topics(self._ports.settings.topic_prefix)
        void = [
            Record(topics.rule_states, one.key.encode(), None)
            for one in self._ports.states.starting_with("")
            if one.rule_id not in rules
        ]
        if void:
            await publish_until_acknowledged(self._ports.publisher, void)


class RuleReader:
    """Runs one rule as it is defined when the reader is made.

    Args:
        rule: The rule.
        ports: What it works with.
    """

    def __init__(self, rule: Rule, ports: RulePorts) -> None:
        self._rule = rule
        self._ports = ports
        self._topics = Topics(ports.settings.topic_prefix)
        self._records = OccurrenceRecords(
            ports.settings, ports.publisher, ports.definitions, ports.admission
        )
        self._topic = _topic_of(rule, self._topics)
        self._counts = RuleCounts(rule.id, rule.source, ports.states.get, ports.metrics)
        self._written_s = monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Read its source until `stop`, whatever becomes of brokers or of the topic."""
        rule = self._rule
        if rule.on is None and self._topics.is_own(self._topic):
            # By name it could feed itself, and read what is every customer's.
            await self._report("is a topic of the service itself; name one of yours")
            await stop.wait()
            return
        while not stop.is_set():
            try:
                await self._read(stop)
            except (KafkaError, UnavailableError) as error:
                _log.warning("rule.failed", rule=rule.id, error=repr(error))
                await wait_until_set(stop, _RETRY_AFTER_S)

    async def _read(self, stop: asyncio.Event) -> None:
        rule = self._rule
        group = self._topics.group(f"rule.{rule.id}")
        consumer = clients.consumer(
            self._ports.settings, client_id=f"rule.{rule.id}", group_id=group
        )
        async with consumer:
            await self._until_there(consumer, stop)
            listener = _Positions(consumer, rule, self._ports.clock)
            consumer.subscribe([self._topic], listener=listener)
            _log.info("rule.started", rule=rule.id, topic=self._topic)
            await self._read_on(consumer, listener, stop)

    async def _until_there(self, consumer: KafkaConsumer, stop: asyncio.Event) -> None:
        """Wait for the topic: who subscribes to one that is missing is warned without end."""
        while not stop.is_set():
            if self._topic in await consumer.topics():
                await self._report("")
                return
            await self._report("there is no such topic; create it, or correct the rule")
            await wait_until_set(stop, _LOOK_FOR_TOPIC_S)

    async def _read_on(
        self, consumer: KafkaConsumer, listener: "_Positions", stop: asyncio.Event
    ) -> None:
        rule, commits = self._rule, OffsetCommitter(consumer)
        while not stop.is_set():
            rate = rule.max_per_s * _share(consumer, self._topic)
            most = max(1, min(_MAX_RECORDS, int(rate * _BATCH_S)))
            fetched = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=most)
            if listener.changed:
                await listener.begin()
                self._counts.keep(one.partition for one in consumer.assignment())
                continue
            fired = await self._fire([one for found in fetched.values() for one in found])
            for partition, found in fetched.items():
                await commits.mark_processed({partition: found[-1].offset + 1})
            if not fetched:
                await commits.flush()
                if consumer.assignment() and not consumer.partitions_for_topic(self._topic):
                    break  # it was deleted: look for it again
            await self._write_rows()
            if fired:
                await wait_until_set(stop, fired / rate)
        await commits.flush()
        await self._write_rows(due=True)

    async def _fire(self, records: Sequence[ConsumedRecord]) -> int:
        """Do what the rule says for those that fit; how many these are."""
        if not records:
            return 0
        now = self._ports.clock.now()
        firings: dict[str, tuple[RuleFiring, ConsumedRecord]] = {}
        for record in records:
            source = source_record(self._rule, record)
            if source is None:
                continue
            found = match(self._rule, source)
            if isinstance(found, RuleFiring):
                firings[found.agenda_id] = found, record
            else:
                self._counts.count(record.partition, found, now)
        refused: dict[str, SubmissionError] = {}
        if firings:
            made = await self._records_of([one for one, _ in firings.values()], refused, now)
            made += [
                self._letter(firings[agenda_id][1], error)
                for agenda_id, error in refused.items()
            ]
            await publish_until_acknowledged(self._ports.publisher, made)
        for agenda_id, (_, record) in firings.items():
            error = refused.get(agenda_id)
            outcome: RuleOutcome = "fired" if error is None else "failed"
            self._counts.count(
                record.partition, outcome, now, failure="" if error is None else str(error)
            )
        _log.info("rule.read", rule=self._rule.id, records=len(records), fired=len(firings))
        return len(firings)

    async def _records_of(
        self, firings: Sequence[RuleFiring], refused: dict[str, SubmissionError], now: datetime
    ) -> list[Record]:
        """What is published for these; why some are refused is put into `refused`."""
        if self._rule.action == "submission":
            sourced = map(Sourced.of_firing, firings)
            return await self._records.of_all(sourced, now, on_refused=refused.__setitem__)
        made: list[Record] = []
        for one in firings:
            try:
                event = one.act(now)
            except SubmissionError as error:
                refused[one.agenda_id] = error
            else:
                made.append(self._action_record(event))
        return made

    def _action_record(self, event: RuleActed) -> Record:
        named = event.name if isinstance(event, SignalGiven) else event.link_id
        key = f"{event.customer_id} {named}".encode()
        return Record(self._topics.rule_actions, key, encode(event))

    def _letter(self, record: ConsumedRecord, error: SubmissionError) -> Record:
        """For the operators alone: the record may hold what is not for the rule's owner."""
        return dead_letter(
            self._topics,
            record,
            part=PART,
            at=self._ports.clock.now(),
            error=(error.code, f"rule {self._rule.id!r}: {error}"),
            issues=error.issues,
            rule_id=self._rule.id,
        )

    async def _report(self, fault: str) -> None:
        """Say in the rule's state why nothing is read, or that something is."""
        row = self._counts.with_fault(fault)
        if fault and row is not None:
            _log.warning("rule.waits", rule=self._rule.id, topic=self._topic, why=fault)
        if row is not None:
            value = encode(row) if fault else None
            record = Record(self._topics.rule_states, row.key.encode(), value)
            await publish_until_acknowledged(self._ports.publisher, [record])

    async def _write_rows(self, *, due: bool = False) -> None:
        """Write what was counted, once a second at most unless it is due."""
        if not due and monotonic() - self._written_s < _ROWS_EVERY_S:
            return
        self._written_s = monotonic()
        rows = [
            Record(self._topics.rule_states, one.key.encode(), encode(one))
            for one in self._counts.take_changed()
        ]
        if rows:
            await publish_until_acknowledged(self._ports.publisher, rows)


class _Positions(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Where a rule begins in partitions that it has never read.

    Attributes:
        changed: Whether partitions came since `begin`.
    """

    def __init__(self, consumer: KafkaConsumer, rule: Rule, clock: Clock) -> None:
        self._consumer = consumer
        self._rule = rule
        self._clock = clock
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
                at = first[partition] = await self._start(native)
            self._consumer.seek(native, at)
        if first:
            await commit(self._consumer, first)

    async def _start(self, native: TopicPartition) -> int:
        if self._rule.start == "earliest":
            return int((await self._consumer.beginning_offsets([native]))[native])
        if self._rule.on == "insight.idle":
            # What is idle is reported to a new rule, once, perhaps before the rule reads.
            since = int(self._clock.now().timestamp() - _IDLE_SINCE_S) * 1_000
            found = (await self._consumer.offsets_for_times({native: since}))[native]
            if found is not None:
                return int(found.offset)
        return int((await self._consumer.end_offsets([native]))[native])


def _share(consumer: KafkaConsumer, topic: str) -> float:
    """Which part of a rule's rate is this process's: that of the partitions it has."""
    there_are = len(consumer.partitions_for_topic(topic) or ())
    return max(1, len(consumer.assignment())) / max(1, there_are)


def _topic_of(rule: Rule, topics: Topics) -> str:
    if rule.on is None:
        return rule.topic or ""
    of_events: dict[RuleEvent, str] = {
        "agenda.ended": topics.agenda_ends,
        "definition.changed": topics.definitions,
        "insight.idle": topics.idle_insights,
    }
    return of_events[rule.on]


_POSITION: Final = re.compile(rb"(\d{1,9})/(\d{1,16})")


def source_record(rule: Rule, record: ConsumedRecord) -> SourceRecord | None:
    """A record of a rule's source; None if it is nothing for rules."""
    source = SourceRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers or ()),
    )
    if rule.on in {"agenda.ended", "insight.idle"}:
        found = _POSITION.fullmatch(dict(source.headers).get(POSITION_HEADER) or b"")
        if found is None:
            return source
        place = found[1].decode() if rule.on == "agenda.ended" else key_place(record.key)
        return replace(source, place=place, position=int(found[2]))
    if rule.on == "definition.changed":
        version = header_version(record, DEFINITION_VERSION_HEADER)
        value = definition_change(record.key, record.value, version)
        if value is None:
            return None
        place = key_place(record.key) if version else ""
        return replace(source, value=value, place=place, position=version or None)
    return source
