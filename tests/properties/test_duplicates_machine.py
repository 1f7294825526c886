"""Agendas with keys through crashes: whatever is cut, one of two ends, and that once.

As in `test_backlog_machine`, a crash keeps a prefix of an event's writes, and the event comes
again. Here two backlogs get the same events, one of which never crashes: they must agree on
what stands for each key, and every lifecycle must be one that the fold accepts.
"""

from contextlib import suppress
from datetime import timedelta

from backlogs import START, failed, placed, settled
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logged_table import LoggedTable

from pop_stream.model.definitions import Insight
from pop_stream.model.errors import TransitionError
from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaCancelled
from pop_stream.model.events.scheduling import Command, Origin
from pop_stream.policy.backlog.agenda_index import IN_FLIGHT, PENDING
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.lifecycle.fold import fold
from pop_stream.policy.lifecycle.states import State
from pop_stream.scheduler.state.backlog_store import BacklogStore, rows_by_insight

BEGAN = START.timestamp()
CRASHES = st.none() | st.integers(0, 6)
RULES = st.builds(
    DedupeRule,
    key=st.sampled_from("kl"),
    during=st.sampled_from(["waiting", "running"]),
    on_duplicate=st.sampled_from(["refuse", "keep", "replace", "update", "reprioritise"]),
    within_s=st.sampled_from([0.0, 5.0, 50.0]),
)


class DuplicatesMachine(RuleBasedStateMachine):
    """Rules are events; the crashing backlog follows the one that never crashes."""

    @initialize()
    def begin(self):
        self.insight = Insight(id="media")
        self.table = LoggedTable()
        self.epoch = 0
        self.now = BEGAN
        self.made = 0
        self.summaries = {}
        self.steady = Backlog(self.insight, lambda _: Share())
        self.take_over()

    def take_over(self):
        self.epoch += 1
        self.backlog = Backlog(self.insight, lambda _: Share())
        self.store = BacklogStore(self.table, 0, "media", self.epoch)
        rows = rows_by_insight(self.table, 0).get("media", {})
        self.store.load(rows, self.backlog, self.now)
        self.publish()

    def publish(self):
        for event in self.backlog.drain_outbox().lifecycle:
            known = self.summaries.get(event.agenda_id)
            with suppress(TransitionError):
                self.summaries[event.agenda_id] = fold(known, event)

    def event(self, change, crash):
        self.now += 1.0
        change(self.steady, None)
        self.steady.drain_outbox()
        rows, self.table.log = dict(self.table.data), []
        self.handle(change)
        written = len(self.table.log)
        if crash is not None and crash < written:
            self.table.rewind(rows, crash)
            self.take_over()
            self.handle(change)

    def handle(self, change):
        change(self.backlog, self.store)
        self.publish()
        self.store.save(self.backlog)

    @rule(rules=st.lists(RULES, min_size=1, max_size=5), held=st.booleans(), crash=CRASHES)
    def arrive(self, rules, held, crash):
        agendas = []
        for one in rules:
            self.made += 1
            name, after = f"a{self.made}", self.now - BEGAN
            agendas.append(placed(name, after=after, dedupe=one, held=held, rank=self.made % 3))
        origins = [Origin(partition=0, offset=self.made, index=n) for n in range(len(agendas))]

        def change(backlog, store):
            fresh = backlog.filter_new(agendas, origins, self.now)
            if not fresh:
                return
            number = backlog.place([agendas[index] for index in fresh], self.now)
            if store is not None:
                store.write_page(number, [encode(agendas[index]) for index in fresh])

        self.event(change, crash)

    @rule(count=st.integers(1, 4))
    def emit(self, count):
        names = [one.agenda_id for one in self.steady.choose(count, self.now)]
        assert [one.agenda_id for one in self.backlog.choose(count, self.now)] == names
        self.store.save(self.backlog)

    def some(self, states):
        index = self.steady.index
        fit = [one for one, ref in index.refs().items() if index.state(ref) in states]
        return min(fit, default=None)

    @rule(is_success=st.booleans(), crash=CRASHES)
    def end(self, is_success, crash):
        name = self.some(IN_FLIGHT)
        if name is not None:
            end = settled(name) if is_success else failed(name, retryable=False)
            self.event(lambda backlog, _: backlog.settle(end, self.now), crash)

    @rule(action=st.sampled_from(["cancel", "hold", "release"]), crash=CRASHES)
    def command(self, action, crash):
        name = self.some(PENDING)
        if name is not None:
            wanted = Command(agenda_id=name, action=action)
            self.event(lambda backlog, _: backlog.apply_command(wanted, self.now), crash)

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def move(self):
        self.take_over()

    @invariant()
    def what_stands_is_what_would_without_crashes(self):
        if not hasattr(self, "steady"):
            return
        mine, theirs = self.backlog.index, self.steady.index
        assert {*mine.refs()} == {*theirs.refs()}
        for name, ref in theirs.refs().items():
            assert mine.state(mine.find(name)) == theirs.state(ref)
            page, slot = theirs.at(ref)
            own_page, own_slot = mine.at(mine.find(name))
            assert page.priorities[slot] == own_page.priorities[own_slot]
            assert page.ranks[slot] == own_page.ranks[own_slot]

    @invariant()
    def nobody_is_here_who_was_said_to_have_ended(self):
        if not hasattr(self, "steady"):
            return
        for name in self.backlog.index.refs():
            known = self.summaries.get(name)
            assert known is None or known.state is not State.CANCELLED
        at = START + timedelta(seconds=1)
        for name, known in self.summaries.items():
            if known.duplicate_of is not None:
                again = AgendaCancelled(
                    agenda_id=name, at=at, insight_id="media", attempt=1, duplicate_of="x"
                )
                with suppress(TransitionError):
                    assert fold(known, again).duplicate_of == known.duplicate_of


TestDuplicates = DuplicatesMachine.TestCase
