"""What is placed again unasked, and everything that keeps it from being placed twice."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from fakes import FixedDefinitions, MemoryPublisher
from prometheus_client import CollectorRegistry

from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_lifecycle, decode_ready, decode_routed
from pop_stream.model.events.scheduling import QueueDescribed, TrackedAgenda
from pop_stream.policy.lifecycle.reconcile import LedgerRow
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.lag import GroupOffsets
from pop_stream.reconciler import progress, reconciler
from pop_stream.reconciler.comparison import LedgerComparison
from pop_stream.reconciler.evidence import AgendaEvidence
from pop_stream.reconciler.progress import PartProgress
from pop_stream.reconciler.reconciler import LedgerAudit, Reconciler
from pop_stream.reconciler.repairs import LedgerRepairs
from pop_stream.reconciler.schedule import ReconciliationMetrics
from pop_stream.relay.relay import translate

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TOPICS = Topics("t.")
QUIET = timedelta(seconds=1)


def row(agenda_id, state=State.READY, *, attempt=1, version=3, insight_id="media"):
    return LedgerRow(agenda_id, insight_id, state, attempt, version)


def body(agenda_id):
    document = {
        "id": agenda_id,
        "customer_id": "anna",
        "operations": [{"name": "o", "type": "t"}],
    }
    return json.dumps(document).encode(), NOW


@dataclass
class World:
    """Everything a reconciler asks, as the test wants it.

    Attributes:
        rows: What has not ended; `later` is what the second comparison finds instead, if set.
        holds: What schedulers hold; an insight in `silent` does not answer.
        behind: Names of parts that never catch up: rollup, relay, ingest.
        events: What Kafka has of agendas.
    """

    rows: list = field(default_factory=list)
    later: list | None = None
    holds: set = field(default_factory=set)
    held_later: set = field(default_factory=set)
    silent: set = field(default_factory=set)
    behind: set = field(default_factory=set)
    unknown: bool = False
    is_mine: bool = True
    bodies_of: set | None = None
    comparisons: int = 0
    scans: int = 0
    events: dict = field(default_factory=dict)
    publisher: MemoryPublisher = field(default_factory=MemoryPublisher)

    @asynccontextmanager
    async def try_lock(self):
        yield self.is_mine

    async def scan(self, quiet):
        self.scans += 1
        return len(self.rows)

    async def listed(self, quiet):
        for one in self.rows:
            yield [one]

    async def rows_of(self, agenda_ids):
        self.comparisons += 1
        known = self.rows if self.later is None else self.later
        return [one for one in known if one.agenda_id in agenda_ids]

    async def bodies(self, agenda_ids):
        wanted = agenda_ids if self.bodies_of is None else self.bodies_of & {*agenda_ids}
        return {one: body(one) for one in wanted}

    async def folded(self, topic):
        return {0: 5 if "rollup" in self.behind else 10}

    async def fetch_group_offsets(self, group, topic, group_type="consumer"):
        if self.unknown:
            return None
        behind = any(group.endswith(part) for part in self.behind)
        return GroupOffsets(ends={0: 10, 1: 0}, committed={0: 5 if behind else 10})

    async def ask(self, insight_id, agenda_id="", agenda_ids=()):
        if insight_id in self.silent:
            msg = "the scheduler does not answer"
            raise UnavailableError(msg)
        held = self.holds | (self.held_later if self.comparisons else set())
        holds = tuple(TrackedAgenda(one, "ready", 1) for one in agenda_ids if one in held)
        return QueueDescribed(
            insight_id=insight_id, query_id="q", at=NOW, algorithm="fifo", ready=0, lag=0,
            in_flight=0, slots=0, target=0, rate_per_s=0, customers=(), holds=holds,
        )  # fmt: skip

    async def accepted_at(self, agenda_ids):
        return dict.fromkeys(agenda_ids, NOW)

    async def read_evidence(self, agenda_ids, since):
        assert since == (NOW if agenda_ids else None)
        return {one: self.events[one] for one in agenda_ids if one in self.events}

    async def reconcile(self):
        return await self.reconciler.reconcile(QUIET)

    @property
    def reconciler(self):
        definitions = FixedDefinitions()
        return Reconciler(
            agendas=self,
            ledger=self,
            comparison=partial(LedgerComparison, self, self, definitions),
            progress=PartProgress(TOPICS, self, self, None),
            repairs=LedgerRepairs(
                TOPICS,
                bodies=self,
                summaries=None,
                publisher=self.publisher,
                definitions=definitions,
                translate=translate,
            ),
            read_evidence=self.read_evidence,
        )

    @property
    def placed(self):
        return [
            (one.agenda_id, one.attempt)
            for record in self.publisher.on(TOPICS.ready)
            for event in decode_ready(record.value)
            for one in map(decode_routed, event.agendas)
        ]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(reconciler, "RECHECK_AFTER_S", 0)
    monkeypatch.setattr(progress, "_POLL_EVERY_S", 0.001)
    monkeypatch.setattr(progress, "_CATCH_UP_TIMEOUT_S", 0.05)


async def test_what_nobody_has_is_placed_again():
    world = World(
        [row("lost"), row("fine"), row("ran", State.RUNNING, attempt=2)], holds={"fine"}
    )
    found = await world.reconcile()
    assert (found.checked, found.repaired) == (3, ["lost", "ran"])
    assert world.placed == [("lost", 1), ("ran", 3)]


async def test_what_has_ended_by_its_events_is_not_requeued():
    done = Summary(agenda_id="done", state=State.SUCCEEDED, body=b"{}")
    world = World(
        [row("lost"), row("done", State.RUNNING)],
        events={
            "done": AgendaEvidence((), done),
            "lost": AgendaEvidence((), Summary(agenda_id="lost", state=State.READY)),
        },
    )
    found = await world.reconcile()
    assert found.repaired == ["lost"]
    assert "succeeded" in found.unrepairable["done"]
    assert world.placed == [("lost", 1)]


async def test_that_the_next_attempt_waits_is_reported_for_nobody_else_would():
    world = World([row("lost"), row("ran", State.RUNNING, attempt=2)])
    await world.reconcile()
    got = [decode_lifecycle(one.value) for one in world.publisher.on(TOPICS.agenda_events)]
    assert [(type(e).__name__, e.agenda_id, e.attempt) for es in got for e in es] == [
        ("AgendaReady", "ran", 3)
    ]


async def test_where_all_is_well_nobody_is_waited_for():
    world = World([row("fine")], holds={"fine"}, behind={"relay", "ingest"})
    assert await world.reconcile() == LedgerAudit(checked=1)
    assert world.comparisons == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"held_later": {"a"}},
        {"later": [row("a", version=4)]},
        {"later": [row("a", State.SUCCEEDED, version=4)]},
        {"later": []},
    ],
    ids=["arrived", "changed", "ended", "removed"],
)
async def test_what_moves_is_not_placed_again(changes):
    world = World([row("a")], **changes)
    assert (await world.reconcile()).repaired == []
    assert world.placed == []


@pytest.mark.parametrize("part", ["rollup", "relay", "ingest"])
async def test_while_a_part_is_behind_nothing_is_done(part):
    world = World([row("a")], behind={part})
    with pytest.raises(UnavailableError, match="behind"):
        await world.reconcile()
    assert world.placed == []
    assert world.scans == (0 if part == "rollup" else 1)


async def test_while_kafka_cannot_tell_how_far_parts_are_nothing_is_done():
    world = World([row("a")], unknown=True)
    with pytest.raises(UnavailableError, match="not known"):
        await world.reconcile()
    assert world.placed == []


async def test_an_insight_whose_scheduler_does_not_answer_is_left_alone():
    world = World([row("a"), row("b", insight_id="other")], silent={"media"})
    found = await world.reconcile()
    assert (found.repaired, [*found.unanswered]) == (["b"], ["media"])
    assert world.placed == [("b", 1)]


async def test_another_process_turn_is_left_to_it():
    world = World([row("a")], is_mine=False)
    assert await world.reconcile() is None
    assert (world.scans, world.placed) == (0, [])


async def test_what_cannot_be_placed_is_reported_with_the_reason():
    found = await World([row("a"), row("b")], bodies_of={"b"}).reconcile()
    assert found.repaired == ["b"]
    assert "body" in found.unrepairable["a"]


def test_what_came_of_looks_is_counted():
    registry = CollectorRegistry()
    metrics = ReconciliationMetrics(registry)
    metrics.record(None)
    metrics.record(LedgerAudit(checked=3, repaired=["a", "b"]))
    metrics.record(LedgerAudit(checked=3, unanswered={"media": "away"}))
    metrics.record_postponed(UnavailableError("away"))
    assert registry.get_sample_value("pop_agendas_requeued_total") == 2
    results = {
        name: registry.get_sample_value("pop_reconciliations_total", {"result": name})
        for name in ("complete", "incomplete", "postponed", "others_turn")
    }
    assert results == dict.fromkeys(results, 1)
