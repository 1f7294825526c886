"""Rounds through arbitrary events and kills, at every cut of what two producers write.

A scheduler hands rows to one producer and records to another and is killed: of the rows that
nobody waited for a prefix arrives, of the records any part. The next one reads the table, and
the records from where the table tells on, or from a little before. Whatever the cut, nothing
that counts as emitted is missing from its topic, and a kill repeats the rounds of one record.
"""

from collections import Counter
from contextlib import suppress
from datetime import timedelta

import msgspec
from backlogs import START, failed, placed, settled
from fakes import FixedDefinitions, ManualClock, MemoryPublisher, MemoryReadyTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, ResourcePool
from pop_stream.model.events.codec import decode_emitted, decode_lifecycle, encode
from pop_stream.model.events.lifecycle import AgendaEmitted, AgendaWaiting
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    RoundDecided,
)
from pop_stream.model.ids import InsightId
from pop_stream.model.retry import Backoff
from pop_stream.policy.backlog.agenda_index import CLAIMED, EMITTED, WAITING
from pop_stream.policy.backlog.checkpoint import RoundCheckpoint
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.round_writer import RecordPosition

TOPICS = Topics("t.")
BACKOFF = Backoff(first_s=2.0, jitter=0.0)
POOLED = {"pool": "gpu", "backoff": BACKOFF, "max_attempts": 3}
INSIGHTS = {
    "a": Insight(id="a", target=3, low_water=3, **POOLED),
    "b": Insight(id="b", target=5, low_water=5, **POOLED),
    "c": Insight(id="c", target=2, low_water=2, backoff=BACKOFF, max_attempts=3),
}
NAMES = st.sampled_from(sorted(INSIGHTS))
KILLS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2]),  # publications that come first
    st.lists(st.booleans(), min_size=12, max_size=12),  # which records of the next arrive
    st.integers(0, 12),  # rows that arrive
    st.integers(0, 3),  # records that Faust hands on again though the table has them
)


class Killed(BaseException):
    """The process is no more."""


class CutTable(MemoryReadyTable):
    """Rows on their way to the changelog, those waited for counted."""

    def __init__(self, rows):
        super().__init__()
        self.data = dict(rows)
        self.before = dict(rows)
        self.log = []
        self.sure = 0

    def put(self, key, value):
        super().put(key, value)
        self.log.append((key, value))

    def delete(self, key):
        super().delete(key)
        self.log.append((key, None))

    @property
    def written(self):
        return len(self.log)

    async def wait_durable(self, written=None):
        self.sure = max(self.sure, len(self.log) if written is None else written)

    def arrived(self, more):
        """What the changelog has: all that was waited for, and so many rows more."""
        rows = dict(self.before)
        for key, value in self.log[: self.sure + more]:
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        return rows


class CutPublisher(MemoryPublisher):
    """Ends the process in a publication, of which some records arrive."""

    def __init__(self):
        super().__init__(partition_count=2)
        self.kill = None

    async def publish(self, records):
        if self.kill is not None and self.kill[0] == 0:
            arriving = [one for one, does in zip(records, self.kill[1], strict=False) if does]
            await super().publish(arriving)
            raise Killed
        if self.kill is not None:
            self.kill = (self.kill[0] - 1, *self.kill[1:])
        return await super().publish(records)


def run(coroutine):
    """Nothing here waits for anything, so no loop is needed."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    msg = "it waits"
    raise AssertionError(msg)


class RoundsMachine(RuleBasedStateMachine):
    """Rules write to `pop.ready` or let the scheduler handle a record of it."""

    @initialize()
    def begin(self):
        pools = {"gpu": ResourcePool(id="gpu", max_in_flight=6)}
        insights = {InsightId(one): INSIGHTS[one] for one in INSIGHTS}
        self.definitions = FixedDefinitions(Definitions(insights=insights, pools=pools))
        self.publisher = CutPublisher()
        self.clock = ManualClock(START)
        self.ready = []
        self.next = 0
        self.made = 0
        self.kills = 0
        self.epoch = 0
        self.placed = {}
        self.over = set()
        self.is_settled = False
        self.start(MemoryReadyTable().data)

    def start(self, rows):
        self.epoch += 1
        self.table = CutTable(rows)

        async def create_topic(_):
            pass

        self.handler = ReadyEventHandler(
            table=self.table,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=TOPICS,
            create_topic=create_topic,
            partitions=1,
            owns=lambda _: True,
            read_newest=self.publisher.read_newest,
            epoch=lambda: self.epoch,
        )

    # ---- what is written to pop.ready ----

    @rule(sizes=st.dictionaries(NAMES, st.integers(1, 6), min_size=1))
    def place(self, sizes):
        """A record with a page for each of some insights."""
        events = []
        for insight_id, count in sizes.items():
            agendas = [placed(f"{insight_id}{self.made + n}") for n in range(count)]
            self.made += count
            self.placed |= {one.agenda_id: insight_id for one in agendas}
            origins = [Origin(partition=0, offset=self.made, index=n) for n in range(count)]
            bodies = tuple(Raw(encode(one)) for one in agendas)
            page = InsightAgendasRouted(
                insight_id=insight_id, agendas=bodies, origins=tuple(origins)
            )
            events.append(page)
        self.ready.append(encode(events))

    @rule(data=st.data(), what=st.sampled_from(["claimed", "succeeded", "failed"]))
    def pull(self, data, what):
        """Pullers claim and end what is on the topics."""
        out = [one for one in self.emissions() if one[:2] not in self.over]
        if not out:
            return
        agenda_id, attempt, _ = data.draw(st.sampled_from(out))
        reported = {"claims": (Claim(agenda_id=agenda_id, attempt=attempt),)}
        if what != "claimed":
            self.over.add((agenda_id, attempt))
            end = settled if what == "succeeded" else failed
            reported["settlements"] = (end(agenda_id, attempt, noop=1.0),)
        self.ready.append(
            encode(InsightAttemptsReported(insight_id=self.placed[agenda_id], **reported))
        )

    @rule()
    def wake(self):
        self.ready.append(encode(InsightTick(insight_id="")))

    # ---- what the scheduler does ----

    @rule(waits=st.sampled_from([False, False, True]))
    def handle(self, waits):
        """The next record, or a tick if there is none."""
        self.attempt(waits=waits)
        self.next += 1
        self.is_settled = True

    @rule(kill=KILLS)
    def die(self, kill):
        """While the next record is handled, or right after it; then another takes over."""
        self.publisher.kill = kill
        with suppress(Killed):
            self.attempt(waits=False)
        self.publisher.kill = None
        self.kills += 1
        self.start(self.table.arrived(kill[2]))
        # Faust has not acknowledged the record that was being handled.
        kept = min(self.handler.handled_until(0) or 0, self.next)
        self.next = max(0, kept - kill[3])
        self.is_settled = False

    def attempt(self, waits):
        self.clock.move(timedelta(seconds=1))
        if self.next >= len(self.ready):
            self.wake()
        record_position = RecordPosition(0, self.next)
        run(self.handler.handle(record_position, self.ready[self.next], has_next=waits))

    @rule()
    def hand_over(self):
        """An orderly change of owners: all that was written arrives."""
        self.start(self.table.data)
        self.next = min(self.handler.handled_until(0) or 0, self.next)
        self.is_settled = False

    # ---- what holds ----

    def emissions(self):
        """(agenda, attempt, instant of its round) of all records, by topic in their order."""
        found = []
        for insight_id in INSIGHTS:
            for record in self.publisher.on(TOPICS.insight(insight_id)):
                one = decode_emitted(record.value)
                found.append((one.agenda_id, one.attempt, one.emitted_at))
        return found

    def published(self):
        for record in self.publisher.on(TOPICS.agenda_events):
            yield from decode_lifecycle(record.value)

    @invariant()
    def a_kill_repeats_the_rounds_of_one_record(self):
        assert len(self.repeated()) <= self.kills

    def repeated(self):
        """Instants of the rounds of which something was emitted again."""
        first, again = {}, set()
        for agenda_id, attempt, at in self.emissions():
            key = (agenda_id, attempt)
            if key in first:
                again.add(first[key])
            first.setdefault(key, at)
        return again

    @invariant()
    def what_counts_as_emitted_is_on_its_topic_and_published(self):
        if not self.is_settled:
            return
        there = {one[:2] for one in self.emissions()}
        emitted = {
            (e.agenda_id, e.attempt) for e in self.published() if isinstance(e, AgendaEmitted)
        }
        waiting = {
            (e.agenda_id, e.attempt) for e in self.published() if isinstance(e, AgendaWaiting)
        }
        for scheduler in self.handler.insights():
            index = scheduler.backlog.index
            for agenda_id, ref in index.refs().items():
                key = (agenda_id, index.attempt(ref))
                if index.state(ref) in {EMITTED, CLAIMED}:
                    assert key in there
                    assert key in emitted
                if index.state(ref) == WAITING:
                    assert key in waiting

    @invariant()
    def every_round_is_on_record(self):
        if not self.is_settled:
            return
        records = self.publisher.on(TOPICS.decisions)
        records_read = [
            msgspec.json.decode(one.value, type=RoundDecided | RoundCheckpoint)
            for one in records
        ]
        decided = (one for one in records_read if isinstance(one, RoundDecided))
        numbers = Counter((one.insight_id, one.round) for one in decided)
        for scheduler in self.handler.insights():
            for number in range(1, scheduler.backlog.rounds + 1):
                assert numbers[scheduler.insight_id, number]

    def teardown(self):
        """In the end everything placed runs, and nothing is left."""
        if not hasattr(self, "handler"):
            return
        for _ in range(100):
            self.clock.move(timedelta(seconds=30))
            while self.next < len(self.ready):
                self.handle(waits=False)
            out = {one[:2] for one in self.emissions()} - self.over
            if (
                not out
                and self.next
                and not any(one.backlog.index.total for one in self.handler.insights())
            ):
                break
            for agenda_id, attempt in sorted(out):
                self.over.add((agenda_id, attempt))
                noted = InsightAttemptsReported(
                    insight_id=self.placed[agenda_id],
                    claims=(Claim(agenda_id=agenda_id, attempt=attempt),),
                    settlements=(settled(agenda_id, attempt, noop=1.0),),
                )
                self.ready.append(encode(noted))
            self.wake()
        assert {one[0] for one in self.emissions()} == {*self.placed}
        assert not any(one.backlog.index.total for one in self.handler.insights())


TestRounds = RoundsMachine.TestCase
TestRounds.settings = settings(max_examples=2 * settings().max_examples)
