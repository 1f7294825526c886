"""What the scheduler does with one event: keep, decide, emit, keep again.

Emit, then write the table: a crash between the two repeats a round, and the attempt number
lets pullers and the rollup drop the repeats. The other order could lose one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog
from msgspec import Raw

from pop_stream.bus.publisher import lifecycle_records, publish_until_acknowledged
from pop_stream.bus.topics import Topics
from pop_stream.core import admission
from pop_stream.core.admission import Depth, Pace
from pop_stream.core.backlog import Backlog, Chosen
from pop_stream.core.definitions import Definitions, Insight
from pop_stream.core.events import (
    AgendaEmitted,
    EmittedAgenda,
    InsightNoted,
    InsightPlaced,
    InsightTick,
    ReadyEvent,
    RoundDecided,
    decode_placed,
    decode_ready,
    encode,
)
from pop_stream.core.flow import Share
from pop_stream.core.ids import CustomerId, InsightId
from pop_stream.core.page import place_of
from pop_stream.ports import Clock, DefinitionSource, Publisher, ReadyTable, Record
from pop_stream.scheduler.decisions import decided
from pop_stream.scheduler.shelf import Shelf, insights_in

_log = structlog.get_logger()


@dataclass(slots=True)
class Desk:
    """One insight on this worker: its backlog, its rows, its pace, its last known lag.

    Attributes:
        lag: Consumer lag and the number emitted when it was asked for; None if unknown.
    """

    insight_id: InsightId
    backlog: Backlog
    shelf: Shelf
    pace: Pace = field(default_factory=Pace)
    lag: tuple[int, int] | None = None
    has_topic: bool = False

    @property
    def depth(self) -> Depth:
        """What is out. Claims and measured lag both bound it from above; the lesser counts."""
        unclaimed = self.backlog.unclaimed
        if self.lag is not None:
            lag, emitted = self.lag
            unclaimed = min(unclaimed, lag + self.backlog.emitted - emitted)
        return Depth(unclaimed=unclaimed, in_flight=self.backlog.in_flight)


class Rounds:
    """All desks of this worker, by partition of `pop.ready`; one event at a time.

    Args:
        table: The ReadyAgenda table.
        publisher: Ours, idempotent, with acks=all; not Faust's.
        definitions: Customers and insights in force.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Makes sure an insight's topic exists.
        partitions: Of `pop.ready`.
    """

    def __init__(  # noqa: PLR0913  # every port the scheduler needs, named once
        self,
        *,
        table: ReadyTable,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        create_topic: Callable[[Insight], Awaitable[None]],
        partitions: int,
    ) -> None:
        self._table = table
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._create_topic = create_topic
        self._partitions = partitions
        self._desks: dict[int, dict[str, Desk]] = {}
        self._in_force: Definitions | None = None

    def desks(self) -> list[Desk]:
        """All insights this worker decides for."""
        return [desk for desks in self._desks.values() for desk in desks.values()]

    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return set(self._desks)

    def may_emit(self, desk: Desk) -> bool:
        """Whether a round would have slots now, or definitions changed since the last."""
        insight = self._definitions.current.insights.get(desk.insight_id)
        if insight is None:
            return False
        changed = self._definitions.current is not self._in_force
        return changed or (
            desk.has_topic and admission.slots(insight, desk.depth, desk.pace) > 0
        )

    def unload(self, partition: int) -> None:
        """Forget a partition; its next event reads it from the table again."""
        self._desks.pop(partition, None)

    async def handle(self, partition: int, value: bytes | None) -> None:
        """Handle one record of `pop.ready`.

        Raises:
            UnreadableRecordError: If it is no event; nothing was done.
        """
        ready_events = decode_ready(value)
        if partition not in self._desks:
            self._load(partition)
        self._take_up_definitions()
        touched: dict[str, Desk] = {}
        for event in ready_events:
            for desk in self._concerned(partition, event):
                self._take(desk, event)
                touched[desk.insight_id] = desk
        for desk in touched.values():
            await self._refill(desk)
            desk.shelf.save(desk.backlog)

    def _load(self, partition: int) -> None:
        desks: dict[str, Desk] = {}
        rows_by_insight = insights_in(self._table, partition, partitions=self._partitions)
        for insight_id, rows in rows_by_insight.items():
            desk = self._new_desk(insight_id)
            desk.shelf.load(rows, desk.backlog)
            desks[insight_id] = desk
        self._desks[partition] = desks
        ready = sum(desk.backlog.ready for desk in desks.values())
        _log.info("backlog.loaded", partition=partition, insights=len(desks), ready=ready)

    def _concerned(self, partition: int, event: ReadyEvent) -> Sequence[Desk]:
        desks = self._desks[partition]
        if isinstance(event, InsightTick) and not event.insight_id:
            return [*desks.values()]
        desk = desks.get(event.insight_id)
        if desk is None:
            desk = desks[event.insight_id] = self._new_desk(event.insight_id)
        return [desk]

    def _new_desk(self, insight_id: str) -> Desk:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        backlog = Backlog(insight or Insight(id=insight_id), self._share)
        return Desk(InsightId(insight_id), backlog, Shelf(self._table, insight_id))

    def _share(self, customer_id: CustomerId) -> Share:
        customer = self._definitions.current.customer(customer_id)
        return Share(
            weight=customer.weight,
            max_in_flight=customer.max_in_flight,
            rate_per_s=customer.rate_per_s,
            burst=customer.burst,
            paused=customer.paused,
        )

    def _take_up_definitions(self) -> None:
        current = self._definitions.current
        if current is self._in_force:
            return
        self._in_force = current
        for desk in self.desks():
            insight = current.insights.get(desk.insight_id)
            if insight is not None:
                desk.backlog.reconfigure(insight)

    def _take(self, desk: Desk, event: ReadyEvent) -> None:
        match event:
            case InsightPlaced():
                self._place(desk, event)
            case InsightNoted():
                for claim in event.claims:
                    desk.backlog.claim(claim.agenda_id, claim.attempt)
                for settlement in event.settlements:
                    desk.backlog.settle(settlement)
            case InsightTick():
                if event.lag is not None and event.emitted is not None:
                    desk.lag = (event.lag, event.emitted)

    def _place(self, desk: Desk, event: InsightPlaced) -> None:
        agendas = [decode_placed(one) for one in event.agendas]
        fresh = desk.backlog.news(agendas, event.origins)
        if fresh:
            number = desk.backlog.place([agendas[index] for index in fresh])
            desk.shelf.put_page(number, [bytes(event.agendas[index]) for index in fresh])

    async def _refill(self, desk: Desk) -> None:
        insight = self._definitions.current.insights.get(desk.insight_id)
        if insight is None:
            return
        backlog, now = desk.backlog, self._clock.now()
        depth, ready = desk.depth, backlog.ready
        desk.pace.observe(backlog.claimed, depth, ready=ready, now=now)
        slots = admission.slots(insight, depth, desk.pace) if ready else 0
        chosen = backlog.choose(slots, now.timestamp())
        if not chosen:
            return
        if not desk.has_topic:
            await self._create_topic(insight)
            desk.has_topic = True
        decision = decided(desk.insight_id, backlog, chosen, depth=depth, slots=slots, at=now)
        await self._publish(desk, insight, chosen, decision)

    async def _publish(
        self, desk: Desk, insight: Insight, chosen: Sequence[Chosen], decision: RoundDecided
    ) -> None:
        records = [self._emitted_record(desk, insight, one, decision) for one in chosen]
        lifecycle = await lifecycle_records(
            self._publisher,
            self._topics.agenda_events,
            [
                AgendaEmitted(
                    agenda_id=one.agenda_id,
                    at=decision.at,
                    insight_id=desk.insight_id,
                    attempt=one.attempt,
                )
                for one in chosen
            ],
        )
        why = Record(self._topics.decisions, desk.insight_id.encode(), encode(decision))
        await publish_until_acknowledged(self._publisher, [*records, *lifecycle, why])

    def _emitted_record(
        self, desk: Desk, insight: Insight, chosen: Chosen, decision: RoundDecided
    ) -> Record:
        placed = desk.shelf.agenda(*place_of(chosen.ref))
        emitted = EmittedAgenda(
            agenda_id=chosen.agenda_id,
            insight_id=desk.insight_id,
            customer_id=chosen.customer_id,
            attempt=chosen.attempt,
            accepted_at=placed.accepted_at,
            emitted_at=decision.at,
            lease_ms=insight.lease_ms,
            agenda=Raw(placed.agenda),
        )
        topic = self._topics.insight(desk.insight_id)
        return Record(topic, chosen.agenda_id.encode(), encode(emitted))
