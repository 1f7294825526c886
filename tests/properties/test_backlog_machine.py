"""A backlog through arbitrary events and crashes, against a model that is a dict.

An event changes the backlog, chooses a round, and is saved: what the scheduler does. A crash
keeps a prefix of the event's writes, as the changelog would, and the event comes again. The
rest of the writes may still come, at any later time: the owner was not dead, but frozen.
"""

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta

from backlogs import START, failed, placed, settled
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logged_table import LoggedTable

from pop_stream.model.definitions import Insight
from pop_stream.model.errors import TransitionError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaDeferred,
    AgendaEmitted,
    AgendaFailed,
    AgendaSucceeded,
)
from pop_stream.model.events.scheduling import Command, Origin, Settlement
from pop_stream.model.retry import MIN_DEFERRAL_S
from pop_stream.policy.backlog.agenda_index import CLAIMED, EMITTED, HELD, READY, WAITING
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.lifecycle.fold import fold
from pop_stream.policy.lifecycle.states import State
from pop_stream.scheduler.state.backlog_store import BacklogStore, rows_by_insight

EVER = 1e9
MAX_ATTEMPTS = 3
BEGAN = START.timestamp()
SEEN_AS = {
    "ready": State.READY,
    "waiting": State.WAITING,
    "held": State.HELD,
    "emitted": State.EMITTED,
    "claimed": State.RUNNING,
}
STATES = {READY: "ready", EMITTED: "emitted", CLAIMED: "claimed", WAITING: "waiting"}
STATES[HELD] = "held"
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
    first: int = 1
    most: int = MAX_ATTEMPTS
    due: float = 0.0
    expires_at: float = EVER
    hold: bool = False
    stopping: str = ""
    deferrals: int = 0
    is_deferred: bool = False
    resolved: tuple = ()

    @property
    def is_out(self):
        return self.state in {"emitted", "claimed"}


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
        self.now = BEGAN
        self.epoch = 0
        self.late = []
        self.came_late = set()
        self.is_kept = False
        self.model = {}
        self.ended = {}
        self.summaries = {}
        self.sent = [[], []]
        self.last_page = 0
        self.made = 0
        self.take_over()

    def take_over(self):
        self.epoch += 1
        self.backlog, self.store = self.loaded(self.table, self.epoch)

    def loaded(self, table, epoch):
        backlog = Backlog(self.insight, lambda one: self.shares.get(one, Share()))
        store = BacklogStore(table, 0, "media", epoch)
        store.load(rows_by_insight(table, 0).get("media", {}), backlog, self.now)
        return backlog, store

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
            (
                n
                for n, (key, _) in enumerate(self.table.log)
                if "/journal/" in key or key.endswith("/head")
            ),
            None,
        )
        if crash is None or crash >= len(self.table.log) or journaled is None:
            return result
        lost = crash <= journaled
        self.late += self.table.log[crash:]
        self.table.rewind(rows, crash)
        self.take_over()
        if lost:
            # At most a page's row was kept: the repeat must do the very same.
            again, chosen = self.apply(change, slots)
            assert chosen == result[1]
            assert again == (result[0] if crash == 0 else again)
        else:
            # All was kept, but the event was not committed: the repeat must change nothing.
            self.is_kept = True
            again, _ = self.apply(change, 0)
            self.is_kept = False
            assert not again
        return result

    def apply(self, change, slots):
        changed = change(self.backlog, self.store)
        self.backlog.apply_due(self.now)
        chosen = self.backlog.choose(slots, self.now)
        for event in self.backlog.drain_outbox().lifecycle:
            self.fold_event(event)
        for one in chosen:
            self.fold_event(self.event_of(AgendaEmitted, one.agenda_id, one.attempt))
        self.store.save(self.backlog)
        return changed, [(one.agenda_id, one.attempt, one.customer_id) for one in chosen]

    def event_of(self, kind, agenda_id, attempt, **fields):
        at = START + timedelta(seconds=self.now - BEGAN)
        return kind(agenda_id=agenda_id, at=at, insight_id="media", attempt=attempt, **fields)

    def fold_event(self, event):
        """What the rollup makes of it."""
        known = self.summaries.get(event.agenda_id)
        with suppress(TransitionError):
            self.summaries[event.agenda_id] = fold(known, event)

    def take_dues(self):
        """What the clock wants by now, in the model."""
        for agenda_id, known in [*self.model.items()]:
            if known.expires_at <= self.now:
                self.stop(agenda_id, "expired")
        for known in self.model.values():
            if known.state == "waiting" and known.due <= self.now:
                known.state = "ready"

    def stop(self, agenda_id, reason):
        known = self.model[agenda_id]
        if known.is_out:
            known.stopping = known.stopping or reason
        else:
            self.end(agenda_id, State[reason.upper()])

    def end(self, agenda_id, state):
        del self.model[agenda_id]
        self.ended[agenda_id] = state

    def come_to_nothing(self, agenda_id, *, pauses_s):
        """An attempt fell, in the model."""
        known = self.model[agenda_id]
        if known.stopping:
            self.end(agenda_id, State[known.stopping.upper()])
        elif known.attempt - known.first + 1 - known.deferrals >= known.most:
            self.end(agenda_id, State.FAILED)
        else:
            pause_s = min(
                pauses_s,
                self.insight.backoff.pause_s(
                    known.attempt - known.first + 1 - known.deferrals, seed=agenda_id
                ),
            )
            known.state = "held" if known.hold else "waiting"
            known.attempt, known.hold, known.due = known.attempt + 1, False, self.now + pause_s
            if pauses_s == EVER:  # a lost attempt may not have seen it
                known.resolved = ()
            known.is_deferred = False

    def take_round(self, chosen, slots):
        self.take_dues()
        for agenda_id, attempt, customer_id in chosen:
            known = self.model[agenda_id]
            assert (known.state, known.attempt) == ("ready", attempt)
            assert known.customer_id == customer_id
            known.state = "emitted"
        assert len(chosen) == slots or not any(map(self.may_go, CUSTOMERS))

    def may_go(self, customer_id):
        """Whether it has work waiting that no limit of its own holds back."""
        share = self.shares.get(customer_id, Share())
        own = [one for one in self.model.values() if one.customer_id == customer_id]
        out = sum(one.is_out for one in own)
        below = share.max_in_flight is None or out < share.max_in_flight
        return any(one.state == "ready" for one in own) and below and not share.paused

    def place(self, agendas, origins):
        def change(backlog, store):
            fresh = backlog.filter_new(agendas, origins)
            if fresh:
                number = backlog.place([agendas[index] for index in fresh], self.now)
                store.write_page(number, [encode(agendas[index]) for index in fresh])
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
                    after=self.now - BEGAN,
                    **self.draw_terms(data),
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
            self.model[agenda.agenda_id] = Known(
                agenda.customer_id,
                state="held" if agenda.held else "waiting" if agenda.not_before else "ready",
                attempt=agenda.attempt,
                first=agenda.attempt,
                most=agenda.max_attempts or MAX_ATTEMPTS,
                due=agenda.not_before.timestamp() if agenda.not_before else 0.0,
                expires_at=agenda.expires_at.timestamp() if agenda.expires_at else 2 * EVER,
            )
        fresh, chosen = self.event(self.place(agendas, origins), slots, crash)
        assert fresh == [agenda.agenda_id for agenda in agendas]
        self.take_round(chosen, slots)

    def draw_terms(self, data):
        """Mostly none, so that the plain way is tried as well."""
        if data.draw(st.booleans()):
            return {}
        later = st.none() | st.integers(0, 12).map(self.instant)
        return {
            "attempt": data.draw(st.sampled_from([1, 1, 4])),
            "held": data.draw(st.sampled_from([False, False, True])),
            "not_before": data.draw(later),
            "expires_at": data.draw(later),
            "max_attempts": data.draw(st.none() | st.integers(1, 2)),
        }

    def instant(self, seconds):
        return START + timedelta(seconds=self.now - BEGAN + seconds)

    @rule(data=st.data(), slots=st.integers(0, 3))
    def repeat(self, data, slots):
        """Ingest reads on from an old offset, with pages cut elsewhere."""
        lane = self.sent[data.draw(st.integers(0, 1))]
        first = data.draw(st.integers(0, len(lane)))
        for start in range(first, len(lane), size := data.draw(st.integers(1, 9))):
            some = lane[start : start + size]
            agendas, origins = zip(*some, strict=True)
            fresh, chosen = self.event(self.place(agendas, origins), slots, None)
            assert fresh == []
            self.take_round(chosen, slots)

    @rule(slots=st.integers(0, 8), crash=CRASHES)
    def tick(self, slots, crash):
        _, chosen = self.event(lambda *_: False, slots, crash)
        self.take_dues()
        ready = sum(known.state == "ready" for known in self.model.values())
        assert len(chosen) <= min(slots, ready)
        self.take_round(chosen, slots)

    @rule(count=st.integers(1, 4))
    def learn_of_an_owner_before(self, count):
        """What it had on its way arrives, in its order, whoever has taken over since."""
        arriving, self.late = self.late[:count], self.late[count:]
        for key, value in arriving:
            if value is None:
                self.table.data.pop(key, None)
            else:
                self.table.data[key] = value
                self.came_late.add(key)

    @rule()
    def move(self):
        """The partition goes to another owner, and nothing is on its way."""
        self.take_over()

    def some(self, data, *states):
        """An agenda in one of the states; None if there is none."""
        fit = sorted(one for one, known in self.model.items() if known.state in states)
        return data.draw(st.sampled_from(fit)) if fit else None

    def sees(self, agenda_id):
        """A puller has its record, whatever a crash made the scheduler forget."""
        attempt = self.model[agenda_id].attempt
        self.fold_event(self.event_of(AgendaEmitted, agenda_id, attempt))
        return attempt

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def claim(self, data, slots, crash):
        """Also of an agenda whose round a crash made forgotten: then it is out all the same."""
        agenda_id = self.some(data, "ready", "emitted", "claimed")
        if agenda_id is None:
            return
        known = self.model[agenda_id]
        is_new = known.state != "claimed"
        known.state = "claimed"
        attempt = self.sees(agenda_id)
        self.fold_event(
            self.event_of(AgendaClaimed, agenda_id, attempt, puller_id="p", lease_ms=1)
        )
        claimed, chosen = self.event(
            lambda backlog, _: backlog.claim(agenda_id, attempt, self.now), slots, crash
        )
        assert claimed == is_new
        self.take_round(chosen, slots)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def settle(self, data, slots, crash):
        agenda_id = self.some(data, "ready", "emitted", "claimed")
        if agenda_id is None:
            return
        attempt = self.sees(agenda_id)
        self.fold_event(self.event_of(AgendaSucceeded, agenda_id, attempt))
        self.end(agenda_id, State.SUCCEEDED)
        spent = data.draw(
            st.sampled_from([{}, {"cut": 0.0}, {"cut": 0.3}, {"cut": 9.0, "mix": 0.01}])
        )
        end = settled(agenda_id, attempt, **spent)
        ended, chosen = self.event(
            lambda backlog, _: backlog.settle(end, self.now), slots, crash
        )
        assert ended
        self.take_round(chosen, slots)

    @rule(data=st.data(), final=st.booleans(), slots=st.integers(0, 3), crash=CRASHES)
    def fail(self, data, final, slots, crash):
        agenda_id = self.some(data, "ready", "emitted", "claimed")
        if agenda_id is None:
            return
        attempt = self.sees(agenda_id)
        self.fold_event(
            self.event_of(AgendaFailed, agenda_id, attempt, message="no", retryable=not final)
        )
        end = failed(agenda_id, attempt, retryable=not final, cut=0.3)
        ended, chosen = self.event(
            lambda backlog, _: backlog.settle(end, self.now), slots, crash
        )
        assert ended
        if final:
            self.end(agenda_id, State.FAILED)
        else:
            self.come_to_nothing(agenda_id, pauses_s=EVER)
        self.take_round(chosen, slots)

    @rule(data=st.data(), later=st.integers(-5, 20), slots=st.integers(0, 3), crash=CRASHES)
    def defer(self, data, later, slots, crash):
        """An operation waits for something: the next attempt is due then."""
        agenda_id = self.some(data, "ready", "emitted", "claimed")
        if agenda_id is None:
            return
        attempt = self.sees(agenda_id)
        until = self.instant(later)
        self.fold_event(self.event_of(AgendaDeferred, agenda_id, attempt, until=until))
        end = Settlement(agenda_id=agenda_id, attempt=attempt, outcome="deferred", until=until)
        ended, chosen = self.event(
            lambda backlog, _: backlog.settle(end, self.now), slots, crash
        )
        assert ended
        known = self.model[agenda_id]
        if known.stopping:
            self.end(agenda_id, State[known.stopping.upper()])
        else:
            known.state = "held" if known.hold else "waiting"
            known.attempt, known.hold = known.attempt + 1, False
            known.deferrals += 1
            known.resolved = ()
            known.is_deferred = True
            known.due = max(until.timestamp(), self.now + MIN_DEFERRAL_S)
        self.take_round(chosen, slots)

    @rule(slots=st.integers(0, 3), crash=CRASHES)
    def fall_silent(self, slots, crash):
        """Every puller is dead: what is with one, and what was to stop, comes back."""
        silent = sorted(
            one
            for one, known in self.model.items()
            if known.state == "claimed" or (known.is_out and known.stopping)
        )

        def expire(backlog, _):
            # What was let go and was to stop in the same event has a new lease.
            relayed_until = self.now if self.is_kept else EVER * 3
            return backlog.attempts.expire_leases(relayed_until, self.now)

        lost, chosen = self.event(expire, slots, crash)
        assert lost == len(silent)
        for agenda_id in silent:
            self.come_to_nothing(agenda_id, pauses_s=1.0)
        self.take_round(chosen, slots)

    def want(self, agenda_id, slots, crash, **fields):
        """A command; returns whether it changed anything."""
        wanted = Command(agenda_id=agenda_id, **fields)
        changed, chosen = self.event(
            lambda backlog, _: backlog.apply_command(wanted, self.now), slots, crash
        )
        return changed, chosen

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def cancel(self, data, slots, crash):
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            is_new = not self.model[agenda_id].stopping
            changed, chosen = self.want(agenda_id, slots, crash, action="cancel")
            assert changed == is_new
            self.stop(agenda_id, "cancelled")
            self.take_round(chosen, slots)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def hold(self, data, slots, crash):
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            known = self.model[agenda_id]
            is_new = not (known.state == "held" or known.hold or known.stopping)
            changed, chosen = self.want(agenda_id, slots, crash, action="hold")
            assert changed == is_new
            if is_new and known.is_out:
                known.hold = True
            elif is_new:
                known.state = "held"
            self.take_round(chosen, slots)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def release(self, data, slots, crash):
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            known = self.model[agenda_id]
            changed, chosen = self.want(agenda_id, slots, crash, action="release")
            assert changed == (known.state == "held" or known.hold)
            if known.state == "held":
                known.state = "waiting"
            known.hold = False
            self.take_round(chosen, slots)

    @rule(
        data=st.data(),
        operation=st.sampled_from(["a", "b"]),
        slots=st.integers(0, 3),
        crash=CRASHES,
    )
    def wake(self, data, operation, slots, crash):
        """What an operation waited for has come, once or again, whatever is going on."""
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            known = self.model[agenda_id]
            changed, chosen = self.want(
                agenda_id, slots, crash, action="wake", operation=operation
            )
            assert changed == (operation not in known.resolved)
            if changed:
                known.resolved = (*known.resolved, operation)
                if known.is_deferred and known.state == "waiting":
                    known.state = "ready"
                elif known.is_deferred and known.state == "held":
                    known.due = 0.0
            self.take_round(chosen, slots)

    @rule(data=st.data(), slots=st.integers(0, 3), crash=CRASHES)
    def wait_in_vain(self, data, slots, crash):
        """What it waited for did not come in time, if it is held still."""
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            is_held = self.model[agenda_id].state == "held"
            changed, chosen = self.want(agenda_id, slots, crash, action="fail")
            assert changed == is_held
            if is_held:
                self.end(agenda_id, State.FAILED)
            self.take_round(chosen, slots)

    @rule(data=st.data(), priority=st.integers(0, 10), slots=st.integers(0, 3), crash=CRASHES)
    def reprioritise(self, data, priority, slots, crash):
        agenda_id = self.some(data, *SEEN_AS)
        if agenda_id is not None:
            changed, chosen = self.want(
                agenda_id, slots, crash, action="reprioritise", priority=priority, rank=1
            )
            assert not (changed and priority in {0, 10})
            self.take_round(chosen, slots)

    @rule(data=st.data())
    def apply_nonsense(self, data):
        """Notes of the unknown, the gone and the outdated change nothing."""
        agenda_id = data.draw(st.sampled_from(["nobody", *sorted(self.model)]))
        known = self.model.get(agenda_id)
        wrong = known.attempt + data.draw(st.sampled_from([-1, 7])) if known else 1
        assert not self.backlog.claim(agenda_id, wrong, self.now)
        assert not self.backlog.attempts.renew(agenda_id, wrong, self.now)
        assert not self.backlog.settle(settled(agenda_id, wrong, cut=1.0), self.now)
        assert not self.backlog.settle(failed(agenda_id, wrong, cut=1.0), self.now)
        self.backlog.drain_outbox()

    @rule(
        customer_id=st.sampled_from(CUSTOMERS),
        share=SHARES,
        slots=st.integers(0, 4),
        crash=CRASHES,
    )
    def refresh_shares(self, customer_id, share, slots, crash):
        self.shares[customer_id] = share

        def change(backlog, _):
            backlog.reconfigure(self.insight)
            return False

        _, chosen = self.event(change, slots, crash)
        self.take_round(chosen, slots)

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
        self.take_round(chosen, slots)

    @rule(idle=st.integers(250, 300))
    def run_through_the_ring(self, idle):
        """Enough events for a snapshot; each moves a little so that it is journaled."""
        for number in range(idle):
            agenda = placed(f"r{self.made}-{number}", "ann", after=self.now - BEGAN)
            lane = self.sent[0]
            origin = Origin(partition=0, offset=len(lane))
            lane.append((agenda, origin))
            self.event(self.place([agenda], [origin]), 0, None)
            wanted = Command(agenda_id=agenda.agenda_id, action="cancel")
            self.event(
                lambda backlog, _, one=wanted: backlog.apply_command(one, self.now), 0, None
            )
            self.take_round([], 0)
        self.made += 1

    # ---- what holds at any time ----

    @invariant()
    def counts_are_what_the_slots_say(self):
        states = [known.state for known in self.model.values()]
        assert self.backlog.ready == states.count("ready")
        assert self.backlog.in_flight == sum(known.is_out for known in self.model.values())
        assert self.backlog.unclaimed == states.count("emitted")
        assert self.backlog.waiting == states.count("waiting")
        assert self.backlog.held == states.count("held")
        for flow in self.backlog.queue.flows():
            own = [one for one in self.model.values() if one.customer_id == flow.customer_id]
            assert flow.ready == sum(one.state == "ready" for one in own)
            assert flow.in_flight == sum(one.is_out for one in own)

    @invariant()
    def every_agenda_is_where_the_model_says(self):
        for agenda_id, known in self.model.items():
            where = self.backlog.position_of(agenda_id)
            assert (STATES[where.state], where.attempt) == (known.state, known.attempt)
            assert (where.overrides.stopping, where.overrides.hold) == (
                known.stopping,
                known.hold,
            )
            assert where.overrides.resolved == known.resolved

    @invariant()
    def what_was_published_adds_up_to_where_it_is(self):
        for agenda_id, known in self.model.items():
            summary = self.summaries.get(agenda_id)
            if summary is not None:
                assert (summary.state, summary.attempt) == (SEEN_AS[known.state], known.attempt)
            else:
                assert (known.state, known.attempt) == ("ready", known.first)
        for agenda_id, state in self.ended.items():
            assert self.summaries[agenda_id].state is state
        self.ended.clear()

    @invariant()
    def nothing_is_lost_and_nothing_is_left_behind(self):
        assert {*self.backlog.index.refs()} == {*self.model}
        rows = [key for key in self.table.data.keys() - self.came_late if "/page/" in key]
        numbers = sorted(int(key.rsplit("/", 1)[1]) for key in rows)
        assert numbers == sorted(page.number for page in self.backlog.index.pages())
        assert all(page.remaining > 0 for page in self.backlog.index.pages())
        bodies = {
            self.store.agenda(ref >> 9, ref & 511).agenda_id: ref
            for ref in self.backlog.index.refs().values()
        }
        assert bodies == self.backlog.index.refs()

    @invariant()
    def nobody_is_further_ahead_than_the_bound_that_is_shown(self):
        queue = self.backlog.queue
        if not queue.algorithm.by_age:
            assert queue.gap() <= queue.bound() * (1 + 1e-9)

    @invariant()
    def a_reload_goes_on_as_if_nothing_had_happened(self):
        """Also where it chooses its rounds in parts."""
        copies = [LoggedTable() for _ in range(2)]
        for copy in copies:
            copy.data = dict(self.table.data)
        whole, parts = (self.loaded(copy, self.epoch + 1)[0] for copy in copies)
        live, at = deepcopy(self.backlog), self.now + 1.0
        for cut in range(2, 5):
            for one in (live, whole, parts):
                one.apply_due(at)
            rounds = [one.choose(7, at) for one in (live, whole)]
            assert rounds[0] == rounds[1]
            assert rounds[0] == parts.choose(cut, at) + parts.choose(7 - cut, at)
            for number, chosen in enumerate(rounds[0]):
                end = settled(chosen.agenda_id, chosen.attempt, cut=0.1 + number / 3)
                assert [one.settle(end) for one in (live, whole, parts)] == [True] * 3
        assert live.unclaimed == whole.unclaimed
        assert live.next_page == whole.next_page


def page_of(key):
    """From 1, so that none is false; None for another kind of row."""
    rest, _, number = key.rpartition("/")
    return int(number) + 1 if rest.endswith("/page") else None


def replace_insight(insight, algorithm, aging_s):
    return insight.model_copy(update={"algorithm": algorithm, "aging_s": aging_s})


TestBacklog = BacklogMachine.TestCase
