"""Does what rules do besides submitting: commands agendas of a link, and gives signals.

It reads `pop.rule-actions` as a group of its own, beside the rollup. A link is looked up twice,
at once and some seconds later, as an agenda that was accepted just before may not be folded
yet. Offsets are committed after that, so a crash repeats an action: cancels and signals come to
the same, and a release may also release what was held again meanwhile.

While the database is away it pauses and stays in its group.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import Final, NamedTuple

import structlog
from msgspec import UNSET

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import (
    RateLimitError,
    StateError,
    UnreadableRecordError,
)
from pop_stream.model.events.codec import decode_rule_action
from pop_stream.model.events.lifecycle import AgendaCommanded
from pop_stream.model.events.rules import LinkCommanded, RuleActed, SignalGiven
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.signal import Signal
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.rerun import must_reach_scheduler
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter, AgendaStore
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.ports.signals import SignalStore
from pop_stream.rollup.storing import until_available
from pop_stream.settings import Settings

PART: Final = "rule-actions"

SETTLED_AFTER_S: Final = 5.0
"""By then what was accepted before an action is folded, unless the rollup is far behind."""

_BATCH: Final = 100
_PAGE: Final = 1_000
_POLL_MS: Final = 500
_A_MOMENT: Final = timedelta(microseconds=1)
_GOING_ON: Final = tuple(one for one in State if one not in TERMINAL)

_log = structlog.get_logger()


class _Done(NamedTuple):
    """An action that is to be done once more."""

    due_s: float
    event: RuleActed | None
    partition: TopicPartition
    next_offset: int


class RuleActions:
    """Does actions until stopped; any number of processes may.

    Args:
        settings: Names and keys.
        agendas: Knows the agendas of links.
        signals: Takes signals.
        publisher: Of commands.
        clock: For signals that are over.
    """

    def __init__(
        self,
        settings: Settings,
        agendas: AgendaStore,
        signals: SignalStore,
        publisher: Publisher,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._signer = RecordSigner(settings.signing_keys)
        self._agendas = agendas
        self._signals = signals
        self._publisher = publisher
        self._clock = clock
        self._settling: deque[_Done] = deque()

    async def run(self, stop: asyncio.Event) -> None:
        """Do what is written until `stop`; what is not settled by then is done again."""
        consumer = clients.consumer(
            self._settings,
            self._topics.rule_actions,
            client_id=PART,
            group_id=self._topics.group(PART),
        )
        async with consumer:
            commits = OffsetCommitter(consumer)
            while not stop.is_set():
                fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH)
                for partition, records in fetched.items():
                    for record in records:
                        if not await self._begin(consumer, partition, record, stop):
                            return
                if not await self._settle(consumer, commits, stop):
                    return
            await commits.flush()

    async def _begin(
        self,
        consumer: KafkaConsumer,
        partition: TopicPartition,
        record: ConsumedRecord,
        stop: asyncio.Event,
    ) -> bool:
        event: RuleActed | None = None
        try:
            event = decode_rule_action(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
        if event is not None and not await self._until_done(consumer, event, stop):
            return False
        due_s = monotonic() + SETTLED_AFTER_S
        self._settling.append(_Done(due_s, event, partition, record.offset + 1))
        return True

    async def _settle(
        self, consumer: KafkaConsumer, commits: OffsetCommitter, stop: asyncio.Event
    ) -> bool:
        """Do once more what is due, and commit it; False if the stop came first."""
        while self._settling and self._settling[0].due_s <= monotonic():
            one = self._settling.popleft()
            if isinstance(one.event, LinkCommanded) and not await self._until_done(
                consumer, one.event, stop
            ):
                return False
            if one.partition in consumer.assignment():
                await commits.mark_processed({one.partition: one.next_offset})
        return True

    async def _until_done(
        self, consumer: KafkaConsumer, event: RuleActed, stop: asyncio.Event
    ) -> bool:
        """Do it, however long the database is away; False if the stop came first."""
        return await until_available(
            consumer,
            lambda: self.do(event),
            stop,
            on_postponed=lambda why: _log.info("rule_actions.postponed", reason=why),
        )

    async def do(self, event: RuleActed) -> int:
        """Do an action as far as it can be done now; how many agendas or signals that is.

        Raises:
            UnavailableError: If the database is away.
        """
        if isinstance(event, SignalGiven):
            return await self._give(event)
        commanded, after = 0, None
        wanted = AgendaFilter(
            customer_ids=(event.customer_id,),
            link_ids=(event.link_id,),
            states=_GOING_ON,
            accepted_before=event.at + _A_MOMENT,
        )
        while True:
            found = await self._agendas.find(
                wanted, limit=_PAGE, after=after, newest_first=False
            )
            if not found:
                break
            due = [one for one in found if _is_due(event, one)]
            await self._command(event, due)
            commanded += len(due)
            after = AgendaCursor(found[-1].accepted_at, found[-1].agenda_id)
        if commanded:
            _log.info(
                "rule.commanded", rule=event.rule_id, action=event.action, agendas=commanded
            )
        return commanded

    async def _command(self, event: LinkCommanded, agendas: Sequence[Summary]) -> None:
        now = self._clock.now()
        commands = [
            AgendaCommanded(
                agenda_id=one.agenda_id,
                at=now,
                insight_id=one.insight_id,
                action=event.action,
                by=f"rule:{event.rule_id}",
                reason=event.reason,
                attempt=one.attempt,
            )
            for one in agendas
        ]
        topic = self._topics.agenda_events
        records = await lifecycle_records(self._publisher, topic, commands, signer=self._signer)
        await publish_until_acknowledged(self._publisher, records)

    async def _give(self, event: SignalGiven) -> int:
        expires_at = event.at + timedelta(seconds=event.keep_s)
        if expires_at <= self._clock.now():
            return 0
        signal = Signal(
            customer_id=event.customer_id,
            name=event.name,
            payload=b"" if event.payload is UNSET else bytes(event.payload),
            given_at=event.at,
            given_by=f"rule:{event.rule_id}",
            expires_at=expires_at,
        )
        try:
            await self._signals.give(signal)
        except RateLimitError as error:
            _log.warning("rule.signal_refused", rule=event.rule_id, reason=str(error))
            return 0
        _log.info("signal.given", signal=event.name, customer_id=event.customer_id)
        return 1


def _is_due(event: LinkCommanded, summary: Summary) -> bool:
    """Whether the agenda is in a state for the action; an action without effect is left out."""
    if event.action == "release" and summary.state is not State.HELD:
        return False
    try:
        return must_reach_scheduler(event.action, summary)
    except StateError:
        return False
