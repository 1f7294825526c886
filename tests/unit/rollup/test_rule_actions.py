"""What rules do to agendas and signals: of one customer, in a state for it, until then."""

from datetime import UTC, datetime, timedelta

import msgspec
from fakes import ManualClock, MemoryPublisher
from memory_signals import MemorySignals
from memory_summaries import MemorySummaries

from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.rules import LinkCommanded, SignalGiven
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.rollup.rule_actions import RuleActions
from pop_stream.settings import Settings

AT = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    def __init__(self, *summaries):
        self.publisher, self.signals = MemoryPublisher(), MemorySignals()
        self.clock = ManualClock(AT)
        store = MemorySummaries()
        store.agendas = {one.agenda_id: one for one in summaries}
        self.actions = RuleActions(Settings(), store, self.signals, self.publisher, self.clock)

    @property
    def commanded(self):
        found = [
            event for one in self.publisher.records for event in decode_lifecycle(one.value)
        ]
        return sorted((one.agenda_id, one.action, one.by, one.attempt) for one in found)


def agenda(agenda_id, state=State.READY, *, customer_id="acme", link_id="file-7", after_s=-60):
    return Summary(
        agenda_id=agenda_id,
        state=state,
        attempt=2,
        insight_id="media",
        customer_id=customer_id,
        link_id=link_id,
        accepted_at=AT + timedelta(seconds=after_s),
    )


def wanted(action):
    return LinkCommanded(
        rule_id="gone", at=AT, action=action, customer_id="acme", link_id="file-7"
    )


ALL = (
    agenda("ready"),
    agenda("runs", State.RUNNING),
    agenda("held", State.HELD),
    agenda("ended", State.SUCCEEDED),
    agenda("another-customers", customer_id="beta"),
    agenda("another-links", link_id="file-8"),
    agenda("accepted-later", after_s=1),
    agenda("accepted-just-then", after_s=0),
)


async def test_a_cancel_reaches_what_goes_on_of_one_link_of_one_customer():
    world = World(*ALL)
    assert await world.actions.do(wanted("cancel")) == 4
    by = "rule:gone"
    assert world.commanded == [
        ("accepted-just-then", "cancel", by, 2),
        ("held", "cancel", by, 2),
        ("ready", "cancel", by, 2),
        ("runs", "cancel", by, 2),
    ]


async def test_a_release_reaches_what_is_held():
    world = World(*ALL)
    assert await world.actions.do(wanted("release")) == 1
    assert world.commanded == [("held", "release", "rule:gone", 2)]


async def test_a_signal_is_given_as_of_when_the_rule_gave_it_unless_it_is_over():
    world = World()
    given = SignalGiven(
        rule_id="paid",
        at=AT,
        customer_id="acme",
        name="paid",
        keep_s=60,
        payload=msgspec.Raw(b"[12]"),
    )
    for _ in range(2):  # the second time after a crash
        assert await world.actions.do(given) == 1
    [kept] = world.signals.kept.values()
    assert (kept.customer_id, kept.name, kept.payload) == ("acme", "paid", b"[12]")
    assert (kept.given_by, kept.given_at) == ("rule:paid", AT)
    assert kept.expires_at == AT + timedelta(seconds=60)
    late = World()
    late.clock.move(timedelta(seconds=61))
    assert await late.actions.do(given) == 0
    assert not late.signals.kept
