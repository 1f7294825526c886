"""A backlog through arbitrary events and crashes, against a model that is a dict.

An event changes the backlog, chooses a round, and is saved: what the scheduler does. A crash
keeps a prefix of the event's writes, as the changelog would, and the event comes again.
"""

from copy import deepcopy
from dataclasses import dataclass, field

from backlogs import placed, settled
from fakes import MemoryTable
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pop_stream.core.backlog import Backlog
from pop_stream.core.definitions import Insight
from pop_stream.core.events import Origin, encode
from pop_stream.core.flow import Share
from pop_stream.scheduler.shelf import Shelf, insights_in

CUSTOMERS = ("ann", "bob", "cid")
SHARES = st.builds(
    Share,
    weight=st.sampled_from([0.5, 1.0, 3.0]),
    max_in_flight=st.none() | st.integers(1, 4),
    paused=st.sampled_from([False, False, False, True]),
)
CRASHES = st.none() | st.integers(0, 6)


@dataclass(slots=True)
class Known:
    """What the model says of an agenda that is not gone."""

    customer_id: str
    state: str = "ready"
    attempt: int = 1


@dataclass
class LoggedTable(MemoryTable):
    """Rows whose writes of one event can be cut short."""

    log: list = field(default_factory=list)

    def __post_init__(self):
        MemoryTable.__init__(self)

    def put(self, key, value):
        super().put(key, value)
        self.log.append((key, value))

    def delete(self, key):
        super().delete(key)
        self.log.append((key, None))

    def rewind(self, rows, keep):
        """Back to earlier rows, plus the first `keep` writes since."""
        self.data = dict(rows)
        for key, value in self.log[:keep]:
            self.data.pop(key, None)
            if value is not None:
                self.data[key] = value


class BacklogMachine(RuleBasedStateMachine):
    """Rules are events; what they return is what the outside would see."""

    @initialize(
        algorithm=st.sampled_from(["weighted_fair", "weighted_fair", "round_robin", "fifo"]),
        aging_s=st.sampled_from([None, None, 5.0]),
    )
    def begin(self, algorithm, aging_s):
        self.insight = Insight(id="media", algorithm=algorithm, aging_s=aging_s)
        self.shares = {}
        self.table = LoggedTable()
        self.now = 0.0
        self.model = {}
        self.sent = [[], []]
        self.last_page = 0
        self.made = 0
        self.backlog, self.shelf = self.loaded(self.table)

    def loaded(self, table):
        backlog = Backlog(self.insight, lambda one: self.shares.get(one, Share()))
        shelf = Shelf(table, 0, "media")
        shelf.load(insights_in(table, 0).get("media", {}), backlog)
        return backlog, shelf

    # ---- events ----

    def event(self, change, slots, crash):
        """Let an event happen, perhaps with a crash; returns what it changed and chose."""
        self.now += 1.0
        rows, self.table.log = dict(self.table.data), []
        try:
            return self.outcome(change, slots, crash, rows)
        finally:
            new = [page_of(key) for key in self.table.data.keys() - rows.keys()]
            for number in filter(None, new):
                assert number > self.last_page
                self.last_page = number

    def outcome(self, change, slots, crash, rows):
        result = self.apply(change, slots)
        journaled = next(
            (n for n, (key, _) in enumerate(self.table.log) if "/journal/" in key), None
        )
        if crash is None or crash >= len(self.table.log) or journaled is None:
            return result
        lost = crash <= journaled
        self.table.rewind(rows, crash)
        self.backlog, self.shelf = self.loaded(self.table)
        if lost:
            # At most a page's row was kept: the repeat must do the very same.
            again, chosen = self.apply(change, slots)
            assert chosen == result[1]
            assert again == (result[0] if crash == 0 else again)
        else:
            # All was kept, but the event was not committed: the repeat must change nothing.
            again, _ = self.apply(change, 0)
            assert not again
        return result

    def apply(self, change, slots):
        changed = change(self.backlog, self.shelf)
        chosen = self.backlog.choose(slots, self.now)
        self.shelf.save(self.backlog)
        return changed, [(one.agenda_id, one.attempt, one.customer_id) for one in chosen]

    def take_round(self, chosen):
        for agenda_id, attempt, customer_id in chosen:
            known = self.model[agenda_id]
            assert (known.state, known.attempt) == ("ready", attempt)
            assert known.customer_id == customer_id
            known.state = "emitted"

    def place(self, agendas, origins):
        def change(backlog, shelf):
            fresh = backlog.news(agendas, origins)
            if fresh:
                number = backlog.place([agendas[index] for index in fresh])
                shelf.put_page(number, [encode(agendas[index]) for index in fresh])
            return [agendas[index].agenda_id for index in fresh]

        return change

    @rule(data=st.data(), slots=st.integers(0, 6), crash=CRASHES)
    def arrive(self, data, slots, crash):
        """A page of new agendas."""
        partition = data.draw(st.integers(0, 1))
        agendas = []
        for _ in range(data.draw(st.integers(1, 7))):
            self.made += 1
            agendas.append(
                placed(
                    f"a{self.made}",
                    data.draw(st.sampled_from(CUSTOMERS)),
                    after=self.now,
                    priority=data.draw(st.integers(1, 9)),
                    rank=data.draw(st.integers(0, 2)),
                    fairness_key=data.draw(st.sampled_from(["", "", "x", "y"])),
                    operation_types=data.draw(st.sampled_from([("cut",), ("cut", "mix"), ()])),
                    cost_s=data.draw(st.sampled_from([None, 0.5, 1.0, 4.0])),
                )
            )
        lane = self.sent[partition]
        origins = [
            Origin(partition=partition, offset=len(lane) + n) for n in range(len(agendas))
        ]
        lane.extend(zip(agendas, origins, strict=True))
        for agenda in agendas:
            self.model[agenda.agenda_id] = Known(agenda.customer_id)
        fresh, chosen = self.event(self.place(agendas, origins), slots, crash)
        assert fresh == [agenda.agenda_id for agenda in agendas]
        self.take_round(chosen)

    @rule(data=st.data(), slots=st.integers(0, 3))
    def repeat(self, data, slots):
        """Intake reads on from an old offset, with pages cut elsewhere."""
        lane = self.sent[data.draw(st.integers(0, 1))]
        first = data.draw(st.integers(0, len(lane)))
        for start in range(first, len(lane), size := data.draw(st.integers(1, 9))):
            some = lane[start : start + size]
            agendas, origins = zip(*some, strict=True)
            fresh, chosen = self.event(self.place(agendas, origins), slots, None)
            assert fresh == []
            self.take_round(chosen)

    @rule(slots=st.integers(0, 8), crash=CRASHES)
    def tick(self, slots, crash):
        ready = sum(known.state == "ready" for known in self.model.values())
        _, chosen = self.event(lambda *_: False, slots, crash)
        assert len(chosen) <= min(slots, ready)
        self.take_round(chosen)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def claim(self, data, slots, crash):
        """Also of an agenda whose round a crash made forgotten: then it is out all the same."""
        if self.model:
            agenda_id = data.draw(st.sampled_from(sorted(self.model)))
            known = self.model[agenda_id]
            is_news = known.state != "claimed"
            known.state = "claimed"
            attempt = known.attempt
            claimed, chosen = self.event(
                lambda backlog, _: backlog.claim(agenda_id, attempt), slots, crash
            )
            assert claimed == is_news
            self.take_round(chosen)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def settle(self, data, slots, crash):
        if self.model:
            agenda_id = data.draw(st.sampled_from(sorted(self.model)))
            attempt = self.model.pop(agenda_id).attempt
            spent = data.draw(
                st.sampled_from([{}, {"cut": 0.0}, {"cut": 0.3}, {"cut": 9.0, "mix": 0.01}])
            )
            told = settled(agenda_id, attempt, **spent)
            ended, chosen = self.event(lambda backlog, _: backlog.settle(told), slots, crash)
            assert ended
            self.take_round(chosen)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def give_back(self, data, slots, crash):
        out = sorted(one for one, known in self.model.items() if known.state != "ready")
        if out:
            agenda_id = data.draw(st.sampled_from(out))
            known = self.model[agenda_id]
            attempt = known.attempt
            known.state, known.attempt = "ready", attempt + 1
            returned, chosen = self.event(
                lambda backlog, _: backlog.give_back(agenda_id, attempt), slots, crash
            )
            assert returned
            self.take_round(chosen)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def withdraw(self, data, slots, crash):
        if self.model:
            agenda_id = data.draw(st.sampled_from(sorted(self.model)))
            waits = self.model[agenda_id].state == "ready"
            if waits:
                del self.model[agenda_id]
            gone, chosen = self.event(
                lambda backlog, _: backlog.withdraw(agenda_id), slots, crash
            )
            assert gone == waits
            self.take_round(chosen)

    @rule(data=st.data())
    def hear_nonsense(self, data):
        """Notes of the unknown, the gone and the outdated change nothing."""
        agenda_id = data.draw(st.sampled_from(["nobody", *sorted(self.model)]))
        known = self.model.get(agenda_id)
        wrong = known.attempt + data.draw(st.sampled_from([-1, 1, 7])) if known else 1
        for change in (Backlog.claim, Backlog.give_back):
            assert not change(self.backlog, agenda_id, wrong)
        assert not self.backlog.settle(settled(agenda_id, wrong, cut=1.0))

    @rule(
        customer_id=st.sampled_from(CUSTOMERS),
        share=SHARES,
        slots=st.integers(0, 4),
        crash=CRASHES,
    )
    def reshare(self, customer_id, share, slots, crash):
        self.shares[customer_id] = share

        def change(backlog, _):
            backlog.reconfigure(self.insight)
            return False

        _, chosen = self.event(change, slots, crash)
        self.take_round(chosen)

    @rule(
        algorithm=st.sampled_from(["weighted_fair", "round_robin", "fifo"]),
        aging_s=st.sampled_from([None, 5.0]),
        slots=st.integers(0, 4),
    )
    def reorder(self, algorithm, aging_s, slots):
        self.insight = replace_insight(self.insight, algorithm, aging_s)

        def change(backlog, _):
            backlog.reconfigure(self.insight)
            return False

        _, chosen = self.event(change, slots, None)
        self.take_round(chosen)

    @rule(idle=st.integers(250, 300))
    def run_through_the_ring(self, idle):
        """Enough events for a snapshot; each moves a little so that it is journaled."""
        for number in range(idle):
            agenda = placed(f"r{self.made}-{number}", "ann", after=self.now)
            lane = self.sent[0]
            origin = Origin(partition=0, offset=len(lane))
            lane.append((agenda, origin))
            self.event(self.place([agenda], [origin]), 0, None)
            self.event(lambda backlog, _, one=agenda.agenda_id: backlog.withdraw(one), 0, None)
        self.made += 1

    # ---- what holds at any time ----

    @invariant()
    def counts_are_what_the_slots_say(self):
        states = [known.state for known in self.model.values()]
        assert self.backlog.ready == states.count("ready")
        assert self.backlog.in_flight == len(states) - states.count("ready")
        assert self.backlog.unclaimed == states.count("emitted")
        for flow in self.backlog.queue.flows():
            own = [one for one in self.model.values() if one.customer_id == flow.customer_id]
            assert flow.ready == sum(one.state == "ready" for one in own)
            assert flow.in_flight == sum(one.state != "ready" for one in own)

    @invariant()
    def nothing_is_lost_and_nothing_is_left_behind(self):
        assert {*self.backlog._places} == {*self.model}
        rows = [key for key in self.table.data if "/page/" in key]
        numbers = sorted(int(key.rsplit("/", 1)[1]) for key in rows)
        assert numbers == sorted(self.backlog._pages)
        assert all(page.left > 0 for page in self.backlog._pages.values())
        bodies = {
            self.shelf.agenda(ref >> 9, ref & 511).agenda_id: ref
            for ref in self.backlog._places.values()
        }
        assert bodies == self.backlog._places

    @invariant()
    def a_reload_goes_on_as_if_nothing_had_happened(self):
        copy = LoggedTable()
        copy.data = dict(self.table.data)
        reloaded, _ = self.loaded(copy)
        live = deepcopy(self.backlog)
        for _ in range(3):
            rounds = [one.choose(7, self.now + 1.0) for one in (live, reloaded)]
            assert rounds[0] == rounds[1]
            for number, chosen in enumerate(rounds[0]):
                told = settled(chosen.agenda_id, chosen.attempt, cut=0.1 + number / 3)
                assert live.settle(told) == reloaded.settle(told) == True  # noqa: E712
        assert live.unclaimed == reloaded.unclaimed
        assert live.next_page == reloaded.next_page


def page_of(key):
    """From 1, so that none is false; None for another kind of row."""
    kind, _, number = key.removeprefix("0/media/").partition("/")
    return int(number) + 1 if kind == "page" else None


def replace_insight(insight, algorithm, aging_s):
    return insight.model_copy(update={"algorithm": algorithm, "aging_s": aging_s})


TestBacklog = BacklogMachine.TestCase
