"""What becomes of agendas with one key, in every order and over crashes."""

from collections import Counter
from datetime import timedelta

import pytest
from backlogs import START, backlog, cancel, failed, give_back, placed, settled
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.codec import decode_routed, encode
from pop_stream.model.events.lifecycle import AgendaCancelled, AgendaReprioritised
from pop_stream.policy.backlog import dedupe_keys
from pop_stream.policy.backlog.agenda_index import HELD, IN_FLIGHT, PENDING, READY
from pop_stream.policy.backlog.dedupe_keys import DedupeKeys
from pop_stream.policy.backlog.duplicates import MAX_DEBOUNCES, RETRY_AFTER_S
from pop_stream.policy.lifecycle.reconcile import LedgerRow, placed_for_repair
from pop_stream.policy.lifecycle.states import State

NOW = START.timestamp()


def keyed(agenda_id, key="k", *, after=0.0, fields=None, **rule):
    wait = timedelta(seconds=after + rule["debounce_s"]) if "debounce_s" in rule else None
    given = {"not_before": START + wait} if wait is not None else {}
    return placed(
        agenda_id, after=after, dedupe=DedupeRule(key=key, **rule), **given, **(fields or {})
    )


def place(one, *agendas, now=NOW):
    one.place([decode_routed(encode(agenda)) for agenda in agendas], now)
    return losers(one)


def losers(one):
    """Who ended as a duplicate since the last call, and of whom."""
    return {
        event.agenda_id: event.duplicate_of
        for event in one.drain_outbox().lifecycle
        if isinstance(event, AgendaCancelled)
    }


def here(one):
    return {*one.index.refs()}


# ---- policies ----


@pytest.mark.parametrize("policy", ["refuse", "keep"])
def test_the_later_one_ends_and_names_the_one_that_waits(policy):
    one = backlog()
    assert place(one, keyed("a", on_duplicate=policy), keyed("b", on_duplicate=policy)) == {
        "b": "a"
    }
    assert here(one) == {"a"}
    assert place(one, keyed("other", "another key")) == {}


def test_a_duplicate_of_what_runs_ends_until_that_has_ended():
    one = backlog()
    place(one, keyed("a"))
    one.choose(1, NOW)
    assert place(one, keyed("b")) == {"b": "a"}
    one.claim("a", 1, NOW)
    assert place(one, keyed("c")) == {"c": "a"}
    one.settle(settled("a"), NOW)
    assert place(one, keyed("d")) == {}


def test_while_waiting_what_runs_has_no_duplicates():
    one = backlog()
    place(one, keyed("a", during="waiting"))
    one.choose(1, NOW)
    assert place(one, keyed("b", during="waiting"), keyed("c", during="waiting")) == {"c": "b"}
    give_back(one, "a", 1, NOW)  # it waits for another attempt, beside b
    assert here(one) == {"a", "b"}
    one.choose(2, NOW)
    assert place(one, keyed("d", during="waiting")) == {}
    assert place(one, keyed("e")) == {"e": "d"}


def test_a_run_that_ended_lately_has_duplicates_for_its_grace():
    one = backlog()
    place(one, keyed("a", within_s=60.0))
    one.choose(1, NOW)
    one.settle(settled("a"), NOW)
    assert place(one, keyed("b", after=59, within_s=60.0), now=NOW + 59) == {"b": "a"}
    # It came within the grace, however late it is placed.
    assert place(one, keyed("late", after=59, within_s=60.0), now=NOW + 99) == {"late": "a"}
    assert place(one, keyed("c", after=59), now=NOW + 59) == {}
    one = backlog()
    place(one, keyed("a", within_s=60.0))
    one.choose(1, NOW)
    one.settle(failed("a", retryable=False), NOW)
    assert place(one, keyed("b", after=60, within_s=60.0), now=NOW + 60) == {}


def test_what_never_ran_leaves_no_grace():
    one = backlog()
    place(one, keyed("a", within_s=60.0))
    cancel(one, "a", NOW)
    one.drain_outbox()
    assert place(one, keyed("b", within_s=60.0)) == {}


def test_the_last_replaces_what_waits_but_not_what_runs():
    one = backlog()
    names = [keyed(name, on_duplicate="replace") for name in "abc"]
    assert place(one, *names) == {"a": "b", "b": "c"}
    one.choose(1, NOW)
    assert place(one, keyed("d", on_duplicate="replace")) == {"d": "c"}
    assert here(one) == {"c"}


def test_an_update_takes_over_priority_rank_and_hold():
    one = backlog()
    first = keyed("a", on_duplicate="update", fields={"priority": 2, "rank": 7, "held": True})
    later = keyed("b", on_duplicate="update", fields={"priority": 9, "rank": 1})
    place(one, first)
    assert place(one, later) == {"a": "b"}
    ref = one.index.find("b")
    page, slot = one.index.at(ref)
    assert (page.priorities[slot], page.ranks[slot], page.states[slot]) == (2, 7, HELD)
    restored = restarted(one, [first, later])
    assert restored.index.state(restored.index.find("b")) == HELD


def test_a_duplicate_reprioritises_what_waits():
    one = backlog()
    place(one, keyed("a"), keyed("z", "other"))
    later = keyed("b", on_duplicate="reprioritise", fields={"priority": 1, "rank": 3})
    one.place([later], NOW)
    events = one.drain_outbox().lifecycle
    [moved] = [event for event in events if isinstance(event, AgendaReprioritised)]
    assert (moved.agenda_id, moved.priority, moved.rank) == ("a", 1, 3)
    assert "as its duplicate b" in moved.reason
    assert here(one) == {"a", "z"}
    assert [chosen.agenda_id for chosen in one.choose(1, NOW)] == ["a"]


def test_a_debounced_agenda_starts_after_a_pause_in_which_nothing_followed():
    one = backlog()
    rule = {"during": "waiting", "on_duplicate": "debounce", "debounce_s": 10.0}
    place(one, keyed("a", after=0, **rule), now=NOW)
    assert place(one, keyed("b", after=9, **rule), now=NOW + 9) == {"a": "b"}
    one.apply_due(NOW + 18)
    assert one.ready == 0
    one.apply_due(NOW + 19)
    assert [chosen.agenda_id for chosen in one.choose(1, NOW + 19)] == ["b"]
    assert place(one, keyed("c", after=20, **rule), now=NOW + 20) == {}


def test_a_debounced_agenda_is_not_put_off_for_ever():
    one = backlog()
    rule = {"during": "waiting", "on_duplicate": "debounce", "debounce_s": 10.0}
    for second in range(0, 300, 5):
        place(one, keyed(f"a{second}", after=second, **rule), now=NOW + second)
        one.apply_due(NOW + second)
        if one.ready:
            break
    assert second == 10 * MAX_DEBOUNCES


def test_one_that_runs_again_is_no_duplicate_but_has_some():
    one = backlog()
    place(one, keyed("a", within_s=60.0))
    one.choose(1, NOW)
    one.settle(settled("a"), NOW)
    assert place(one, keyed("a", within_s=60.0, fields={"attempt": 2})) == {}
    assert place(one, keyed("b")) == {"b": "a"}


def test_what_is_placed_again_for_repair_loses_against_what_came_later():
    body = (
        b'{"id":"a","customer_id":"acme","operations":[{"name":"x","type":"noop"}],'
        b'"dedupe":{"key":"k","on_duplicate":"replace"}}'
    )
    row = LedgerRow("a", "media", State.READY, 1, version=3)
    again = placed_for_repair(row, body, START)
    assert again.dedupe is not None
    one = backlog()
    place(one, keyed("b", again.dedupe.key, on_duplicate="replace"))
    assert place(one, again) == {"a": "b"}


def test_a_query_says_of_what_one_would_be_a_duplicate_and_until_when():
    one = backlog()
    rule = DedupeRule(key="k", within_s=60.0)
    assert one.duplicates.of(rule, NOW) is None
    place(one, keyed("a", within_s=60.0))
    found = one.duplicates.of(rule, NOW)
    assert (found.agenda_id, found.retry_after_s) == ("a", RETRY_AFTER_S)
    one.choose(1, NOW)
    one.settle(settled("a"), NOW)
    assert one.duplicates.of(rule, NOW + 20).retry_after_s == 40.0
    assert one.duplicates.of(rule, NOW + 60) is None


def test_ends_are_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(dedupe_keys, "MAX_ENDS", 3)
    keys = DedupeKeys()
    for number in range(5):
        keys.end(DedupeRule(key=f"k{number}", within_s=100.0), f"a{number}", float(number))
    assert [*keys.all_ends()] == ["k2", "k3", "k4"]
    keys.end(DedupeRule(key="k9", within_s=5.0), "a9", 200.0)
    assert [*keys.all_ends()] == ["k4", "k9"]  # what is over goes, two at a time
    other = DedupeKeys()
    other.apply(keys.drain_changed())
    assert other.all_ends() == keys.all_ends()


# ---- any order, any crash ----


def restarted(one, agendas):
    """Another process, from pages of one agenda each and the state."""
    again = backlog()
    live = {page.number for page in one.index.pages()}
    again.restore(
        [(number, [agenda]) for number, agenda in enumerate(agendas) if number in live],
        [one.state()],
        NOW,
    )
    return again


POLICIES = st.sampled_from(["refuse", "keep", "replace", "update", "reprioritise"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("place"),
            st.sampled_from("kl"),
            POLICIES,
            st.sampled_from(["waiting", "running"]),
            st.sampled_from([0.0, 50.0]),
        ),
        st.tuples(st.just("emit")),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("fail")),
        st.tuples(st.just("cancel")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("pass"), st.integers(1, 100)),
    ),
    max_size=40,
)


class Keyed:
    """A backlog of agendas with keys, and all that ever came."""

    def __init__(self):
        self.one = backlog()
        self.agendas = []
        self.ended = Counter()
        self.now = NOW

    def run(self, step):
        kind, *rest = step
        getattr(self, f"_{kind}")(*rest)
        for event in self.one.drain_outbox().lifecycle:
            if isinstance(event, AgendaCancelled):
                self.ended[event.agenda_id] += 1
                if event.duplicate_of:
                    self._check_loser(event)

    def _check_loser(self, event):
        """A loser was of the winner's key, and is gone."""
        rules = {agenda.agenda_id: agenda.dedupe.key for agenda in self.agendas}
        assert rules[event.agenda_id] == rules[event.duplicate_of]
        assert event.agenda_id not in here(self.one)

    def _place(self, key, policy, during, within_s):
        agenda = keyed(
            f"a{len(self.agendas)}",
            key,
            after=self.now - NOW,
            on_duplicate=policy,
            during=during,
            within_s=within_s,
        )
        before = self.of(key)
        expected = self.one.duplicates.of(agenda.dedupe, self.now)
        self.agendas.append(agenda)
        self.one.place([agenda], self.now)
        after = self.of(key)
        assert bool(expected) is (len(after) <= len(before))
        if expected is None:
            assert agenda.agenda_id in after

    def _emit(self):
        self.one.choose(1, self.now)

    def out(self):
        return sorted(name for name in here(self.one) if self.state(name) in IN_FLIGHT)

    def _end(self, is_success):
        for name in self.out()[:1]:
            ref = self.one.index.find(name)
            attempt = self.one.index.attempt(ref)
            end = settled if is_success else failed
            end = end(name, attempt) if is_success else end(name, attempt, retryable=False)
            self.one.settle(end, self.now)
            self.ended[name] += 1

    def _fail(self):
        for name in self.out()[:1]:
            attempt = self.one.index.attempt(self.one.index.find(name))
            if attempt < 3:
                give_back(self.one, name, attempt, self.now)

    def _cancel(self):
        waiting = sorted(name for name in here(self.one) if self.state(name) in PENDING)
        for name in waiting[:1]:
            cancel(self.one, name, self.now)

    def _pass(self, seconds):
        self.now += seconds

    def _restart(self):
        before = {name: self.state(name) for name in here(self.one)}
        self.one = restarted(self.one, self.agendas)
        assert {name: self.state(name) for name in here(self.one)} == before

    def state(self, name):
        return self.one.index.state(self.one.index.find(name))

    def of(self, key):
        names = {agenda.agenda_id for agenda in self.agendas if agenda.dedupe.key == key}
        return names & here(self.one)


@given(steps=STEPS)
def test_every_agenda_ends_once_or_is_here_and_no_two_wait_that_exclude_each_other(steps):
    world = Keyed()
    for step in steps:
        world.run(step)
        for agenda in world.agendas:
            name = agenda.agenda_id
            assert world.ended[name] + (name in here(world.one)) == 1
        for key in "kl":
            fresh = [
                name
                for name in world.of(key)
                if world.state(name) == READY
                and world.one.index.attempt(world.one.index.find(name)) == 1
            ]
            assert len(fresh) <= 1


@given(order=st.permutations(range(6)), restarts=st.sets(st.integers(0, 5)))
def test_whatever_the_order_one_of_many_that_are_kept_stands_for_the_key(order, restarts):
    one, agendas = backlog(), []
    for step, number in enumerate(order):
        agendas.append(keyed(f"a{number}", on_duplicate="keep"))
        one.place(agendas[-1:], NOW)
        if step in restarts:
            one = restarted(one, agendas)
    assert here(one) == {f"a{order[0]}"}
