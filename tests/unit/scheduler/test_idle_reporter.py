"""When an insight counts as idle, and how often that is reported."""

from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from fakes import FixedDefinitions, ManualClock, MemoryPublisher

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.events.rules import IDLE_PAUSE_S, POSITION_HEADER, InsightIdled
from pop_stream.model.events.scheduling import IdleRunners
from pop_stream.model.rule import Rule
from pop_stream.policy.backlog.flow_counts import IdleRunnerCounts
from pop_stream.scheduler.idle_reporter import IdleReporter

TOPICS = Topics("t.")
RULE = Rule.model_validate(
    {
        "id": "fill",
        "on": "insight.idle",
        "submission": {"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}]},
    }
)


class Counts(SimpleNamespace):
    """An insight's counts, as its backlog has them."""

    def __init__(self, insight):
        super().__init__(ready=0, unclaimed=0, in_flight=0, claimed=0)
        self.insight, self.idle = insight, IdleRunnerCounts()


class IdleWorld:
    """A scheduler that owns `media` and knows of `other`."""

    def __init__(self, *rules, owned=("media",)):
        insights = {one: Insight(id=one) for one in ("media", "other")}
        rules = {one.id: one for one in rules}
        self.definitions = FixedDefinitions(Definitions(insights=insights, rules=rules))
        self.clock, self.publisher = ManualClock(), MemoryPublisher()
        self.owned = [self.new_owned(one) for one in owned]
        self.reporter = self.new_reporter()

    def new_owned(self, insight_id):
        backlog = Counts(Insight(id=insight_id))
        scheduler = SimpleNamespace(has_definition=True)
        return SimpleNamespace(insight_id=insight_id, backlog=backlog, scheduler=scheduler)

    def new_reporter(self):
        handler = SimpleNamespace(
            owned_insights=lambda: self.owned, loaded=lambda: {0, 1, 2, 3}
        )
        return IdleReporter(
            handler,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=TOPICS,
            partitions=4,
        )

    @property
    def backlog(self):
        return self.owned[0].backlog

    async def look(self, after=1.0, **counts):
        """What is reported: of each insight the free runners, and how many run."""
        self.clock.move(timedelta(seconds=after))
        vars(self.backlog).update(counts)
        before = len(self.publisher.on(TOPICS.idle_insights))
        await self.reporter.look()
        return [
            (one.insight_id, one.free_runners, one.running)
            for record in self.publisher.on(TOPICS.idle_insights)[before:]
            for one in [msgspec.json.decode(record.value, type=InsightIdled)]
        ]

    def positions(self):
        return [
            dict(record.headers)[POSITION_HEADER]
            for record in self.publisher.on(TOPICS.idle_insights)
        ]


@pytest.fixture
def world():
    return IdleWorld(RULE)


async def test_what_becomes_idle_is_reported_once_until_it_has_worked_again(world):
    assert await world.look() == [("media", 0, 0)]
    assert await world.look(after=1_000) == []
    assert await world.look(ready=1) == []
    assert await world.look(ready=0, unclaimed=1, in_flight=1) == []
    assert await world.look(unclaimed=0, claimed=1) == []
    assert await world.look(in_flight=0) == [("media", 1, 0)]
    assert await world.look(after=1_000) == []


async def test_a_runner_that_is_free_beside_others_counts(world):
    assert await world.look(ready=5, in_flight=8, claimed=8) == []
    assert await world.look(ready=0) == []
    assert await world.look(in_flight=6) == [("media", 2, 6)]


async def test_what_lately_ran_is_forgotten_after_a_minute(world):
    assert await world.look(ready=1, in_flight=8, claimed=8) == []
    assert await world.look(after=59) == []
    assert await world.look(after=61, in_flight=6) == []
    assert await world.look(ready=0) == []


async def test_what_a_puller_has_just_said_counts(world):
    assert await world.look(in_flight=1, claimed=1) == []
    now = world.clock.now().timestamp()
    world.backlog.idle.update([IdleRunners("p", 3, insights=1)], now)
    assert await world.look(after=0.5) == [("media", 3, 1)]


async def test_two_reports_are_a_pause_apart(world):
    assert await world.look() != []
    assert await world.look(claimed=1) == []
    assert await world.look(after=IDLE_PAUSE_S - 2.5) == []
    assert await world.look(after=1.5) == [("media", 0, 0)]
    first, second = world.positions()
    assert int(second.partition(b"/")[2]) == int(first.partition(b"/")[2]) + 1


async def test_two_owners_within_a_pause_give_one_position(world):
    await world.look()
    world.reporter = world.new_reporter()
    assert await world.look() != []
    assert len(set(world.positions())) == 1


async def test_a_report_that_fails_is_made_again(world):
    world.publisher.failures.append(UnavailableError("gone"))
    with pytest.raises(UnavailableError):
        await world.look()
    assert await world.look() == [("media", 0, 0)]


async def test_what_is_paused_or_not_defined_is_not_idle(world):
    world.backlog.insight = Insight(id="media", paused=True)
    assert await world.look() == []
    world.backlog.insight = Insight(id="media")
    world.owned[0].scheduler.has_definition = False
    assert await world.look() == []


async def test_nothing_is_reported_unless_a_rule_waits_and_a_new_one_learns_it():
    world = IdleWorld(RULE.model_copy(update={"paused": True}))
    assert await world.look() == []
    world.definitions.current = Definitions(rules={"fill": RULE})
    assert await world.look() == [("media", 0, 0)]
    other = RULE.model_copy(update={"id": "other"})
    world.definitions.current = Definitions(rules={"fill": RULE, "other": other})
    assert await world.look(after=IDLE_PAUSE_S) == [("media", 0, 0)]
    world.definitions.current = Definitions(rules={"fill": RULE})
    assert await world.look(after=IDLE_PAUSE_S) == []


async def test_an_insight_that_never_had_an_agenda_is_woken_once_in_a_pause(world):
    await world.look()
    await world.look()
    woken = [
        one.insight_id
        for record in world.publisher.on(TOPICS.ready)
        for one in decode_ready(record.value)
    ]
    assert woken == ["other"]
