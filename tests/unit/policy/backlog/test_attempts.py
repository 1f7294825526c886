"""What follows an attempt: another one, the end, a stop; and what is published of it."""

from datetime import timedelta

import pytest
from backlogs import START, backlog, cancel, failed, ids, incomparable_origins, placed, settled
from msgspec.structs import replace

from pop_stream.model.events.lifecycle import (
    AgendaCancelled,
    AgendaExhausted,
    AgendaExpired,
    AgendaHeld,
    AgendaReady,
    AgendaReprioritised,
    AgendaStopping,
    AgendaWaiting,
)
from pop_stream.model.events.scheduling import Command, Origin, Settlement
from pop_stream.model.retry import MAX_DEFERRAL_S, MIN_DEFERRAL_S, Backoff
from pop_stream.policy.backlog import attempts as attempts_module
from pop_stream.policy.backlog import series as series_module
from pop_stream.policy.backlog.agenda_index import (
    CLAIMED,
    EMITTED,
    HELD,
    NO_OVERRIDES,
    READY,
    WAITING,
)
from pop_stream.policy.backlog.commands import MAX_RESOLVED
from pop_stream.policy.fairness.flow import Share

NOW = START.timestamp()
STEADY = Backoff(first_s=10.0, factor=2.0, jitter=0.0)


def started(*agendas, claimed=True, **insight):
    """A backlog of these agendas, each of them out."""
    known = {"backoff": STEADY, "lease_ms": 60_000, "max_attempts": 3}
    one = backlog(**(known | insight))
    one.place(agendas, NOW)
    for chosen in one.choose(len(agendas), NOW):
        one.emitted_offsets.send(chosen.ref, 0, NOW)
        if claimed:
            one.claim(chosen.agenda_id, chosen.attempt, NOW)
    one.drain_outbox()
    return one


def published(one):
    """Kinds of the events published, with what matters of each."""
    return [
        (type(event), event.agenda_id, event.attempt) for event in one.drain_outbox().lifecycle
    ]


def state(one, agenda_id="a"):
    where = one.position_of(agenda_id)
    return None if where is None else (where.state, where.attempt)


def wants(action, agenda_id="a", **fields):
    return Command(agenda_id=agenda_id, action=action, **fields)


# ---- failures ----


def test_a_failure_is_followed_by_another_attempt_after_its_pause():
    one = started(placed("a"), placed("b"))
    assert one.settle(failed("a"), NOW)
    [event] = one.drain_outbox().lifecycle
    assert (event.attempt, event.reason, event.message) == (2, "retry", "no luck")
    assert (event.until - START).total_seconds() == 10.0
    assert state(one) == (WAITING, 2)
    assert (one.ready, one.waiting, one.in_flight) == (0, 1, 1)
    assert one.commands.due_at == NOW + 10
    assert one.apply_due(NOW + 9) == 0
    assert one.apply_due(NOW + 10) == 1
    assert published(one) == [(AgendaReady, "a", 2)]
    assert [(each.agenda_id, each.attempt) for each in one.choose(5, NOW + 10)] == [("a", 2)]


def test_pauses_grow_with_every_failure():
    one = started(placed("a"))
    for attempt, pause_s in ((1, 10.0), (2, 20.0)):
        one.settle(failed("a", attempt), NOW)
        assert one.commands.due_at == NOW + pause_s
        one.apply_due(NOW + pause_s)
        one.choose(1, NOW)
        one.claim("a", attempt + 1, NOW)


def test_after_the_last_attempt_it_is_exhausted_and_dead_lettered():
    one = started(placed("a", max_attempts=1))
    one.settle(failed("a"), NOW)
    drained = one.drain_outbox()
    assert [type(event) for event in drained.lifecycle] == [AgendaExhausted]
    [letter] = drained.failed
    assert (letter.code, letter.attempt, letter.message) == ("attempts_exhausted", 1, "no luck")
    assert state(one) is None


def test_attempts_are_counted_from_the_first_one_here():
    one = started(placed("a", attempt=5, max_attempts=2))
    assert state(one) == (CLAIMED, 5)
    one.settle(failed("a", 5), NOW)
    assert state(one) == (WAITING, 6)
    assert one.commands.due_at == NOW + 10, "the first pause, too, is of the first one here"
    one.apply_due(NOW + 100)
    one.choose(1, NOW)
    one.settle(failed("a", 6), NOW)
    assert state(one) is None


def test_an_agenda_may_have_more_attempts_than_its_insight_allows():
    one = started(placed("a", max_attempts=5))
    for attempt in range(1, 5):
        one.settle(failed("a", attempt), NOW)
        one.apply_due(NOW + 1_000)
        one.choose(1, NOW)
    assert state(one) == (EMITTED, 5)


def test_pauses_of_agendas_that_fail_together_end_at_different_times():
    one = started(placed("a"), placed("b"), backoff=Backoff(first_s=10.0, jitter=0.5))
    for agenda_id in "ab":
        one.settle(failed(agenda_id), NOW)
    assert len({event.until for event in one.drain_outbox().lifecycle}) == 2


def test_a_final_failure_is_dead_lettered_without_another_word():
    one = started(placed("a"))
    one.settle(failed("a", retryable=False), NOW)
    assert not one.outbox.is_empty
    drained = one.drain_outbox()
    assert drained.lifecycle == []
    assert drained.failed[0].code == "final_failure"
    assert state(one) is None


def test_an_agenda_of_its_own_backoff_keeps_to_it():
    one = started(placed("a", backoff=Backoff(first_s=77.0, jitter=0.0)))
    one.settle(failed("a"), NOW)
    assert one.commands.due_at == NOW + 77


def test_a_failure_is_service_all_the_same_but_teaches_no_cost():
    one = started(placed("a", cost_s=None))
    one.settle(failed("a", noop=7.0), NOW)
    assert one.queue.flow("acme").account.tag == 7.0
    assert one.costs.usual["acme"] == 7.0
    assert one.costs.learned == {}


def test_an_agenda_that_was_begun_goes_before_its_likes():
    one = backlog(backoff=STEADY)
    one.place([placed("older", held=True), placed("a")], NOW)
    one.choose(1, NOW)
    one.place([placed("c"), placed("urgent", priority=1)], NOW)
    one.settle(failed("a"), NOW)
    one.apply_due(NOW + 10)
    one.apply_command(wants("release", "older"), NOW)
    assert ids(one.choose(9, NOW)) == ["urgent", "a", "older", "c"]


# ---- silence ----


def test_a_silent_attempt_is_lost_and_another_follows_soon():
    one = started(placed("a"), placed("b"))
    one.attempts.renew("b", 1, NOW + 30)
    assert one.attempts.lease_ends_at == NOW + 60
    assert one.attempts.expire_leases(NOW + 60, NOW + 61) == 0
    assert one.attempts.expire_leases(NOW + 60.1, NOW + 61) == 1
    drained = one.drain_outbox()
    [event] = drained.lifecycle
    assert (event.attempt, event.reason) == (2, "lost")
    assert "60 s" in event.message
    assert [(stop.attempt, stop.reason) for stop in drained.stops] == [(1, "outdated")]
    assert one.commands.due_at == NOW + 62
    assert one.attempts.leases_expired == 1
    assert state(one, "b") == (CLAIMED, 1)


def test_the_last_attempt_that_falls_silent_is_given_up():
    one = started(placed("a", max_attempts=1))
    one.attempts.expire_leases(NOW + 100, NOW + 100)
    assert published(one) == [(AgendaExhausted, "a", 1)]
    one.claim("a", 1, NOW)
    assert [stop.reason for stop in one.drain_outbox().stops] == ["outdated"]


def test_a_heartbeat_of_an_attempt_before_keeps_no_other_alive():
    one = started(placed("a"))
    one.attempts.expire_leases(NOW + 61, NOW + 61)
    one.apply_due(NOW + 100)
    one.choose(1, NOW + 100)
    one.claim("a", 2, NOW + 100)
    one.drain_outbox()
    assert not one.attempts.renew("a", 1, NOW + 150)
    assert [(stop.attempt, stop.reason) for stop in one.drain_outbox().stops] == [
        (1, "outdated")
    ]
    assert one.attempts.lease_ends_at == NOW + 160


def test_leases_that_end_together_are_all_counted():
    one = started(placed("a"), placed("b"))
    assert one.attempts.expire_leases(NOW + 61, NOW + 61) == 2
    assert one.attempts.leases_expired == 2


def test_an_outdated_heartbeat_is_answered_with_a_stop():
    one = started(placed("a"))
    one.settle(failed("a"), NOW)
    one.drain_outbox()
    assert not one.attempts.renew("a", 1, NOW)
    assert not one.outbox.is_empty
    assert not one.claim("a", 1, NOW)
    assert [(stop.attempt, stop.reason) for stop in one.drain_outbox().stops] == [
        (1, "outdated")
    ] * 2
    assert not one.attempts.renew("nobody", 1, NOW)
    assert not one.drain_outbox()


def test_whoever_goes_on_after_its_attempt_was_lost_is_stopped():
    one = started(placed("a"), max_attempts=1)
    one.settle(failed("a"), NOW)
    one.drain_outbox()
    assert not one.attempts.renew("a", 1, NOW)
    assert [(stop.attempt, stop.reason) for stop in one.drain_outbox().stops] == [
        (1, "outdated")
    ]


def test_signs_of_life_of_one_that_is_to_stop_are_not_answered_each_time():
    one = started(placed("a"))
    cancel(one, "a", NOW)
    one.drain_outbox()
    assert one.attempts.renew("a", 1, NOW + 5)
    assert one.drain_outbox().stops == []


def test_a_heartbeat_without_a_claim_counts_as_one():
    one = started(placed("a"), claimed=False)
    assert one.attempts.renew("a", 1, NOW)
    assert state(one) == (CLAIMED, 1)
    assert not one.claim("a", 1, NOW + 5)
    assert one.attempts.lease_ends_at == NOW + 65


def test_after_an_outage_every_lease_is_whole_again():
    one = started(placed("a"))
    one.attempts.restart_all(NOW + 500)
    assert one.attempts.expire_leases(NOW + 559, NOW + 559) == 0


def test_while_the_api_is_away_who_speaks_through_it_keeps_its_lease_but_for_what_is_to_stop():
    one = started(*(placed(name) for name in "abcd"))
    for name in "abc":
        one.attempts.mark_by_http(name, 1)
    one.settle(settled("c", 1), NOW)
    cancel(one, "b", NOW)
    one.drain_outbox()
    assert one.attempts.expire_leases(NOW + 99, NOW + 100, is_api_down=True) == 2
    assert state(one, "a") == (CLAIMED, 1)
    assert (state(one, "b"), state(one, "c"), state(one, "d")[1]) == (None, None, 2)
    assert one.attempts.lease_ends_at == NOW + 160
    assert one.attempts.any_by_http
    assert one.attempts.expire_leases(NOW + 161, NOW + 161) == 1
    assert not one.attempts.any_by_http


def test_an_attempt_that_is_over_is_not_noted_as_one_over_http():
    one = started(placed("a"))
    one.attempts.mark_by_http("a", 2)
    one.attempts.mark_by_http("nobody", 1)
    assert not one.attempts.any_by_http


def test_what_was_skipped_unclaimed_comes_back_after_a_lease():
    one = started(placed("a"), placed("b"), claimed=False)
    assert not one.attempts.has_unclaimed(NOW + 1)
    assert one.attempts.has_unclaimed(NOW + 2)
    one.attempts.start_leases_of_skipped([0], 0, NOW + 1)
    assert one.attempts.lease_ends_at is None, "within a second a claim may be on its way"
    one.attempts.start_leases_of_skipped([1], 0, NOW + 2)
    assert one.attempts.lease_ends_at == NOW + 62
    assert one.attempts.expire_leases(NOW + 62, NOW + 62) == 0
    assert one.attempts.expire_leases(NOW + 62.1, NOW + 63) == 1
    [event] = one.drain_outbox().lifecycle
    assert (event.agenda_id, event.attempt, event.reason) == ("a", 2, "lost")
    assert "claimed" in event.message
    assert state(one, "b") == (EMITTED, 1)


def test_nobody_looks_for_what_was_skipped_claimed_or_ended():
    for apply in (
        lambda one: one.attempts.start_leases_of_skipped([0], 0, NOW + 2),
        lambda one: one.claim("a", 1, NOW),
        lambda one: one.settle(settled("a"), NOW),
    ):
        one = started(placed("a"), claimed=False)
        assert one.attempts.has_unclaimed(NOW + 2)
        apply(one)
        assert not one.attempts.has_unclaimed(NOW + 2)


def test_a_claim_that_was_on_its_way_keeps_what_was_skipped():
    one = started(placed("a"), claimed=False)
    one.attempts.start_leases_of_skipped([0], 0, NOW + 2)
    one.claim("a", 1, NOW + 50)
    assert one.attempts.expire_leases(NOW + 100, NOW + 100) == 0
    one.settle(settled("a"), NOW + 101)
    assert one.attempts.lease_ends_at is None


def test_an_attempt_that_a_crash_made_forgotten_is_caught_up_with():
    one = started(placed("a"))
    assert one.claim("a", 2, NOW)
    assert state(one) == (CLAIMED, 2)
    assert one.settle(settled("a", 3), NOW)
    assert state(one) is None
    assert one.in_flight == 0


def test_no_attempt_is_believed_that_cannot_have_been():
    one = started(placed("a", attempt=5, max_attempts=2))
    assert not one.claim("a", 7, NOW)
    assert one.claim("a", 6, NOW)
    assert state(one) == (CLAIMED, 6)


def test_a_hold_of_an_attempt_before_was_released_if_there_is_another():
    one = started(placed("a"))
    assert one.apply_command(wants("hold"), NOW)
    assert one.claim("a", 2, NOW)
    one.settle(failed("a", 2), NOW)
    assert state(one) == (WAITING, 3)


def test_an_attempt_of_what_waits_is_believed():
    one = started(placed("a"))
    one.settle(failed("a"), NOW)
    assert one.claim("a", 2, NOW)
    assert state(one) == (CLAIMED, 2)
    assert (one.waiting, one.in_flight) == (0, 1)
    assert one.apply_due(NOW + 1_000) == 0
    one.settle(failed("a", 2), NOW)
    assert state(one) == (WAITING, 3)


def test_an_attempt_of_what_is_on_hold_is_believed_and_the_hold_comes_after():
    one = backlog()
    one.place([placed("a", held=True)], NOW)
    assert one.claim("a", 1, NOW)
    one.settle(failed("a"), NOW)
    assert state(one) == (HELD, 2)


@pytest.mark.parametrize("waited_s", [0, 10])
def test_a_forgotten_attempt_of_what_waits_is_caught_up_with(waited_s):
    one = started(placed("a"))
    one.settle(failed("a"), NOW)
    one.apply_due(NOW + waited_s)
    assert one.claim("a", 3, NOW)
    assert state(one) == (CLAIMED, 3)
    assert (one.ready, one.waiting, one.in_flight) == (0, 0, 1)
    assert one.apply_due(NOW + 1_000) == 0
    assert one.choose(5, NOW) == [], "it is in nobody's turn any more"


def test_an_agenda_that_ended_before_its_emission_was_noted_is_not_lost_again():
    one = backlog()
    one.place([placed("a")], NOW)
    [chosen] = one.choose(1, NOW)
    one.settle(settled("a"), NOW)
    one.emitted_offsets.send(chosen.ref, 0, NOW)
    one.attempts.start_leases_of_skipped([0], 0, NOW + 2)
    one.drain_outbox()
    assert one.attempts.expire_leases(NOW + 9_999, NOW + 9_999) == 0
    assert published(one) == []
    assert one.attempts.lease_ends_at is None


def test_only_so_many_that_are_over_are_remembered(monkeypatch):
    monkeypatch.setattr(attempts_module, "_MAX_EXPIRED_KEPT", 2)
    one = started(*(placed(name, max_attempts=1) for name in "abc"))
    one.attempts.expire_leases(NOW + 100, NOW + 100)
    one.drain_outbox()
    for name in "abc":
        one.claim(name, 1, NOW)
    assert [stop.agenda_id for stop in one.drain_outbox().stops] == ["b", "c"]


def test_of_those_that_are_over_the_last_to_fall_silent_are_remembered(monkeypatch):
    monkeypatch.setattr(attempts_module, "_MAX_EXPIRED_KEPT", 2)
    one = started(placed("a", max_attempts=2), placed("b", max_attempts=1))
    one.attempts.expire_leases(NOW + 61, NOW + 61)
    one.apply_due(NOW + 100)
    one.choose(1, NOW + 100)
    one.claim("a", 2, NOW + 100)
    one.attempts.expire_leases(NOW + 161, NOW + 161)
    one.place([placed("c", max_attempts=1)], NOW + 200)
    one.choose(1, NOW + 200)
    one.claim("c", 1, NOW + 200)
    one.attempts.expire_leases(NOW + 261, NOW + 261)
    one.drain_outbox()
    for name in "abc":
        one.claim(name, 1, NOW + 300)
    assert [stop.agenda_id for stop in one.drain_outbox().stops] == ["a", "c"]


def test_one_to_stop_that_is_skipped_keeps_its_short_time():
    one = started(placed("a"), claimed=False)
    cancel(one, "a", NOW)
    one.attempts.start_leases_of_skipped([0], 0, NOW + 2)
    assert one.attempts.expire_leases(NOW + 2.1, NOW + 3) == 1


# ---- stops ----


def test_what_waits_is_cancelled_at_once():
    one = backlog()
    one.place([placed("a"), placed("held", held=True), placed("c")], NOW)
    one.drain_outbox()
    assert one.apply_command(wants("cancel", by="ann", reason="enough"), NOW)
    [event] = one.drain_outbox().lifecycle
    assert (type(event), event.message) == (AgendaCancelled, "by ann: enough")
    assert cancel(one, "held")
    assert not cancel(one, "held")
    assert one.commands.ignored == 1
    assert ids(one.choose(5, NOW)) == ["c"]


def test_what_runs_is_stopped_once_and_ends_when_it_has():
    one = started(placed("a"))
    assert cancel(one, "a", NOW)
    assert not cancel(one, "a", NOW)
    drained = one.drain_outbox()
    assert [type(event) for event in drained.lifecycle] == [AgendaStopping]
    assert [stop.reason for stop in drained.stops] == ["cancelled"]
    one.settle(Settlement(agenda_id="a", attempt=1, outcome="stopped"), NOW)
    assert published(one) == [(AgendaCancelled, "a", 1)]
    assert (state(one), one.in_flight) == (None, 0)


@pytest.mark.parametrize(
    ("end", "events"),
    [
        (settled("a"), []),
        (failed("a"), [AgendaCancelled]),
        (failed("a", retryable=False), []),
    ],
)
def test_whatever_the_attempt_comes_to_none_follows_a_cancel(end, events):
    one = started(placed("a"))
    cancel(one, "a", NOW)
    one.drain_outbox()
    one.settle(end, NOW)
    assert [type(event) for event in one.drain_outbox().lifecycle] == events
    assert state(one) is None


def test_a_puller_that_stays_silent_cannot_keep_it():
    one = started(placed("a"))
    one.apply_command(wants("cancel", by="ann", reason="r" * 100), NOW)
    one.drain_outbox()
    assert one.attempts.expire_leases(NOW + 3, NOW + 3) == 0, "what runs has its whole lease"
    one.attempts.expire_leases(NOW + 61, NOW + 61)
    [event] = one.drain_outbox().lifecycle
    assert (type(event), event.agenda_id, event.attempt) == (AgendaCancelled, "a", 1)
    assert event.message == "by ann: " + "r" * 72, "cut, to fit a snapshot's row"
    one.attempts.renew("a", 1, NOW + 70)
    assert [stop.reason for stop in one.drain_outbox().stops] == ["outdated"]


def test_what_nobody_claimed_is_cancelled_within_seconds():
    one = started(placed("a"), placed("b"), claimed=False)
    cancel(one, "a", NOW)
    one.drain_outbox()
    assert one.attempts.expire_leases(NOW + 2.1, NOW + 3) == 1
    assert published(one) == [(AgendaCancelled, "a", 1)]
    assert state(one, "b") == (EMITTED, 1)


def test_what_nobody_claimed_may_be_claimed_for_two_seconds_once_it_is_to_stop():
    one = started(placed("a"), claimed=False)
    assert one.apply_command(wants("cancel"), NOW)
    assert one.attempts.lease_ends_at == NOW + 2


def test_a_lease_shorter_than_the_grace_of_a_stop_is_not_made_longer():
    one = started(placed("a"), claimed=False, lease_ms=1_000)
    cancel(one, "a", NOW)
    assert one.attempts.expire_leases(NOW + 1.1, NOW + 2) == 1


def test_who_claims_it_after_the_stop_is_stopped_again():
    one = started(placed("a"), claimed=False)
    cancel(one, "a", NOW)
    one.drain_outbox()
    assert one.claim("a", 1, NOW)
    assert [stop.reason for stop in one.drain_outbox().stops] == ["cancelled"]


def test_an_attempt_that_stopped_unasked_is_tried_again():
    one = started(placed("a"))
    one.settle(Settlement(agenda_id="a", attempt=1, outcome="stopped"), NOW)
    assert state(one) == (WAITING, 2)


# ---- holds ----


def test_what_waits_is_held_and_released():
    one = backlog()
    one.place([placed("a"), placed("b")], NOW)
    assert one.apply_command(wants("hold", by="ann", reason="wait"), NOW)
    assert not one.apply_command(wants("hold"), NOW)
    [event] = one.drain_outbox().lifecycle
    assert (type(event), event.by, event.reason) == (AgendaHeld, "ann", "wait")
    assert (one.ready, one.held) == (1, 1)
    assert ids(one.choose(5, NOW)) == ["b"]
    assert one.apply_command(wants("release"), NOW)
    assert not one.apply_command(wants("release"), NOW)
    assert published(one) == [(AgendaReady, "a", 1)]
    assert ids(one.choose(5, NOW)) == ["a"]


def test_what_runs_goes_on_and_its_next_attempt_is_held():
    one = started(placed("a"))
    assert one.apply_command(wants("hold"), NOW)
    assert not one.apply_command(wants("hold"), NOW)
    assert not one.drain_outbox()
    one.settle(failed("a"), NOW)
    assert published(one) == [(AgendaHeld, "a", 2)]
    assert one.apply_command(wants("release"), NOW + 1)
    [event] = one.drain_outbox().lifecycle
    assert (type(event), event.reason) == (AgendaWaiting, "retry")
    assert state(one) == (WAITING, 2)


def test_a_hold_of_what_runs_may_be_taken_back():
    one = started(placed("a"))
    one.apply_command(wants("hold"), NOW)
    assert one.apply_command(wants("release"), NOW)
    one.settle(failed("a"), NOW)
    assert state(one) == (WAITING, 2)


def test_what_is_to_stop_is_not_held():
    one = started(placed("a"))
    cancel(one, "a", NOW)
    assert not one.apply_command(wants("hold"), NOW)


def test_it_may_come_held_and_with_a_start_in_the_future():
    one = backlog()
    later = START.replace(minute=1)
    one.place(
        [
            placed("held", held=True, attempt=4),
            placed("later", not_before=later),
            placed("both", held=True, not_before=later),
            placed("now"),
        ],
        NOW,
    )
    drained = one.drain_outbox().lifecycle
    assert [(type(event), event.agenda_id, event.attempt) for event in drained] == [
        (AgendaHeld, "held", 4),
        (AgendaWaiting, "later", 1),
        (AgendaHeld, "both", 1),
    ]
    assert drained[1].reason == "not_before"
    assert ids(one.choose(5, NOW)) == ["now"]
    assert one.apply_due(NOW + 60) == 1
    assert ids(one.choose(5, NOW)) == ["later"]
    assert state(one, "both") == (HELD, 1)


def test_a_start_in_the_past_is_no_wait():
    one = backlog()
    one.place([placed("a", not_before=START)], NOW + 5)
    assert published(one) == []
    one.apply_due(NOW + 5)
    assert ids(one.choose(5, NOW + 5)) == ["a"]


# ---- priorities ----


def test_another_priority_acts_at_once_on_what_waits():
    one = backlog()
    one.place([placed("a"), placed("b"), placed("c")], NOW)
    assert one.apply_command(wants("reprioritise", "c", priority=1), NOW)
    assert not one.apply_command(wants("reprioritise", "c", priority=1), NOW)
    assert one.apply_command(wants("reprioritise", "b", rank=3, by="ann", reason="later"), NOW)
    [first, second] = one.drain_outbox().lifecycle
    assert (second.by, second.reason) == ("ann", "later")
    assert (type(first), first.priority, first.rank) == (AgendaReprioritised, 1, 0)
    assert (second.priority, second.rank) == (5, 3)
    assert ids(one.choose(5, NOW)) == ["c", "a", "b"]


@pytest.mark.parametrize(
    "wrong", [{"priority": 0}, {"priority": 10}, {"rank": -1}, {"rank": 2**32}]
)
def test_an_impossible_priority_changes_nothing(wrong):
    one = backlog()
    one.place([placed("a")], NOW)
    assert not one.apply_command(wants("reprioritise", **wrong), NOW)
    assert not one.drain_outbox()


def test_the_last_priority_and_rank_are_possible_too():
    one = backlog()
    one.place([placed("a"), placed("b")], NOW)
    assert one.apply_command(wants("reprioritise", "a", priority=9, rank=2**32 - 1), NOW)
    assert ids(one.choose(5, NOW)) == ["b", "a"]


def test_another_priority_outlives_a_stop_and_a_restart():
    agendas = [placed("a"), placed("b")]
    one = backlog()
    one.place(agendas, NOW)
    assert one.apply_command(wants("reprioritise", "b", priority=2), NOW)
    assert ids(restarted(one, [(0, agendas)]).choose(5, NOW)) == ["b", "a"]
    one.choose(1, NOW)
    cancel(one, "b", NOW)
    assert one.position_of("b").overrides.priority == 2


def test_what_goes_on_has_no_mark_of_its_wait():
    one = backlog()
    one.place([placed("a", not_before=START.replace(minute=1))], NOW)
    one.apply_due(NOW + 60)
    assert one.position_of("a").overrides == NO_OVERRIDES


def test_another_priority_of_what_is_out_or_held_counts_when_it_waits_again():
    one = started(placed("a"))
    one.place([placed("b", priority=3), placed("h", held=True)], NOW)
    assert one.apply_command(wants("reprioritise", priority=2), NOW)
    assert one.apply_command(wants("reprioritise", "h", priority=1), NOW)
    one.apply_command(wants("release", "h"), NOW)
    one.settle(failed("a"), NOW)
    one.apply_due(NOW + 10)
    assert ids(one.choose(5, NOW)) == ["h", "a", "b"]


# ---- commands given twice, or of another run ----


def origin_at(offset):
    return Origin(partition=-1_000_000, offset=offset)


@pytest.mark.parametrize("action", ["cancel", "hold", "release", "reprioritise"])
def test_a_repeated_command_is_recognised(action):
    one = backlog()
    one.place([placed("a"), placed("h", held=True)], NOW)
    agenda_id = "h" if action == "release" else "a"
    wanted = wants(action, agenda_id, priority=1, origin=origin_at(7))
    assert one.apply_command(wanted, NOW)
    one.place([placed("x")], NOW)
    again = replace(wanted, agenda_id="x", action="cancel")
    assert not one.apply_command(again, NOW)
    assert not one.apply_command(replace(again, origin=origin_at(6)), NOW)
    assert state(one, "x") == (READY, 1)
    assert one.apply_command(replace(again, origin=origin_at(8)), NOW)


def test_what_commands_were_applied_is_kept():
    one = backlog()
    one.apply_command(wants("cancel", origin=origin_at(7)), NOW)
    delta = one.drain_delta()
    fresh = backlog()
    fresh.restore([(0, [placed("a")])], [delta])
    assert not fresh.apply_command(wants("cancel", origin=origin_at(7)), NOW)
    assert fresh.apply_command(wants("cancel", origin=origin_at(7_000)), NOW)


@pytest.mark.parametrize("action", ["cancel", "hold", "reprioritise"])
def test_what_is_wanted_of_an_earlier_run_leaves_the_rerun_alone(action):
    one = backlog()
    one.place([placed("a", attempt=3)], NOW)
    assert not one.apply_command(wants(action, attempt=2, priority=1), NOW)
    assert (state(one), one.commands.ignored) == ((READY, 3), 1)
    assert one.apply_command(wants(action, attempt=3, priority=1), NOW)


def test_what_is_wanted_of_an_earlier_attempt_of_the_same_run_is_done():
    one = started(placed("a", attempt=3))
    one.settle(failed("a", 3), NOW)
    assert state(one) == (WAITING, 4)
    assert one.apply_command(wants("cancel", attempt=3), NOW)
    assert state(one) is None


def test_what_was_placed_anew_is_still_the_same_run():
    one = backlog()
    one.place([placed("a", attempt=4, run_from=3)], NOW)
    assert not one.apply_command(wants("cancel", attempt=2), NOW)
    assert one.apply_command(wants("cancel", attempt=3), NOW)


def test_of_two_who_want_the_same_rerun_the_second_comes_too_late(monkeypatch):
    monkeypatch.setattr(series_module, "MAX_RERUNS", 2)
    one = started(placed("a", attempt=2))
    one.settle(settled("a", 2), NOW)
    assert one.filter_new([placed("a", attempt=2)], incomparable_origins(1)) == []
    assert one.filter_new([placed("a", attempt=3)], incomparable_origins(1)) == [0]
    for other in "bc":  # then it is forgotten
        one.place([placed(other, attempt=2)], NOW)
        cancel(one, other, NOW)
    assert one.filter_new([placed("a", attempt=2)], incomparable_origins(1)) == [0]


def test_a_rerun_is_over_with_the_last_of_its_attempts(monkeypatch):
    monkeypatch.setattr(series_module, "MAX_RERUNS", 2)
    one = started(placed("a", attempt=2), placed("b"), placed("c"), placed("d"))
    one.settle(failed("a", 2), NOW)
    one.apply_due(NOW + 10)
    one.choose(1, NOW + 10)
    one.settle(settled("a", 3), NOW + 10)
    for other in "bcd":  # what never ran again takes nobody's place
        one.settle(settled(other), NOW + 10)
    assert one.filter_new([placed("a", attempt=3)], incomparable_origins(1)) == []


def kept(one, *, whole):
    """What a scheduler that begins now makes of what this backlog has kept."""
    deltas = [one.snapshot()] if whole else [one.drain_delta()]
    fresh = backlog()
    fresh.restore([], deltas, NOW)
    return fresh


@pytest.mark.parametrize("whole", [True, False])
def test_a_rerun_that_is_over_is_known_after_a_restart(whole):
    """It was given twice, by who did not know yet that it had run."""
    one = started(placed("a", attempt=2), placed("b", attempt=2))
    for agenda_id in "ab":
        one.settle(settled(agenda_id, 2), NOW)
    fresh = kept(kept(one, whole=whole), whole=True)
    again = [placed("a", attempt=2), placed("b", attempt=2), placed("a", attempt=3)]
    assert fresh.filter_new(again, incomparable_origins(3)) == [2]


@pytest.mark.parametrize("whole", [True, False])
def test_a_rerun_that_was_forgotten_stays_so_after_a_restart(monkeypatch, whole):
    monkeypatch.setattr(series_module, "MAX_RERUNS", 2)
    one = started(*(placed(name, attempt=2) for name in "abc"))
    for agenda_id in "abc":
        one.settle(settled(agenda_id, 2), NOW)
    fresh = kept(one, whole=whole)
    assert fresh.filter_new(
        [placed(name, attempt=2) for name in "abc"], incomparable_origins(3)
    ) == [0]


@pytest.mark.parametrize("whole", [True, False])
def test_an_id_that_is_used_anew_is_placed_whatever_ran_again_under_it(whole):
    """Else what was accepted would be lost, or its own first rerun."""
    one = started(placed("a", attempt=2))
    one.settle(settled("a", 2), NOW)
    assert one.filter_new([placed("a")], incomparable_origins(1)) == [0]
    one.place([placed("a")], NOW)
    one.choose(1, NOW)
    one.settle(settled("a"), NOW)
    for each in (one, kept(one, whole=whole)):
        assert each.filter_new([placed("a", attempt=2)], incomparable_origins(1)) == [0]


def test_an_id_that_is_used_anew_is_so_too_if_its_page_is_all_that_a_crash_left():
    one = started(placed("a", attempt=2))
    one.settle(settled("a", 2), NOW)
    fresh = backlog()
    fresh.restore([(one.next_page, [placed("a")])], [one.snapshot()], NOW)
    fresh.choose(1, NOW)
    fresh.settle(settled("a"), NOW)
    assert fresh.filter_new([placed("a", attempt=2)], incomparable_origins(1)) == [0]


def test_of_reruns_that_are_over_the_last_to_end_are_remembered(monkeypatch):
    monkeypatch.setattr(series_module, "MAX_RERUNS", 2)
    over = series_module.EndedReruns()
    for agenda_id, attempt in (("a", 2), ("b", 2), ("a", 3), ("c", 2)):
        over.remember(agenda_id, attempt)
    assert [over.is_over(*one) for one in (("a", 3), ("b", 2), ("c", 2))] == [True, False, True]


# ---- deadlines ----


def test_what_is_due_when_its_deadline_has_passed_is_not_readied_first():
    one = backlog()
    soon, later = START.replace(minute=1), START.replace(minute=2)
    one.place([placed("a", not_before=soon, expires_at=later), placed("b")], NOW)
    one.drain_outbox()
    assert one.apply_due(NOW + 300) == 1
    assert published(one) == [(AgendaExpired, "a", 1)]
    assert (state(one), ids(one.choose(5, NOW + 300))) == (None, ["b"])


def test_a_deadline_ends_what_waits_and_stops_what_runs():
    by = START.replace(minute=1)
    one = started(placed("a", expires_at=by))
    one.place([placed("b", expires_at=by, held=True)], NOW)
    one.drain_outbox()
    assert one.commands.due_at == NOW + 60
    assert one.apply_due(NOW + 60) == 2
    drained = one.drain_outbox()
    assert [(type(event), event.agenda_id) for event in drained.lifecycle] == [
        (AgendaStopping, "a"),
        (AgendaExpired, "b"),
    ]
    assert [stop.reason for stop in drained.stops] == ["expired"]
    one.settle(Settlement(agenda_id="a", attempt=1, outcome="stopped"), NOW + 61)
    assert published(one) == [(AgendaExpired, "a", 1)]
    assert one.commands.due_at is None


def test_a_deadline_is_no_second_reason_to_stop():
    one = started(placed("a", expires_at=START.replace(minute=1)))
    cancel(one, "a", NOW)
    one.apply_due(NOW + 60)
    assert one.position_of("a").overrides.stopping == "cancelled"


def test_what_ended_before_its_deadline_is_left_alone():
    one = started(placed("a", expires_at=START.replace(minute=1)))
    one.settle(settled("a"), NOW)
    assert one.commands.due_at is None
    assert one.apply_due(NOW + 100) == 0


# ---- restarts ----


def restarted(one, pages):
    fresh = backlog(backoff=STEADY, lease_ms=60_000)
    fresh.restore(pages, [one.snapshot()], NOW + 500)
    return fresh


def test_everything_wanted_outlives_a_restart():
    agendas = [
        placed("runs", expires_at=START.replace(hour=1)),
        placed("waits"),
        placed("held", held=True),
        placed("stops"),
        placed("out"),
        placed("dear"),
    ]
    one = started(*agendas, max_attempts=3)
    one.settle(failed("waits"), NOW)
    cancel(one, "stops", NOW)
    one.apply_command(wants("hold", "out"), NOW)
    one.apply_command(wants("reprioritise", "dear", priority=1, rank=7), NOW)
    other = restarted(one, [(0, agendas)])
    for agenda in agendas:
        mine, theirs = one.position_of(agenda.agenda_id), other.position_of(agenda.agenda_id)
        assert (mine.state, mine.attempt, mine.overrides) == (
            theirs.state,
            theirs.attempt,
            theirs.overrides,
        )
    assert other.commands.due_at == one.commands.due_at == NOW + 10
    assert other.attempts.lease_ends_at == NOW + 560
    assert (other.waiting, other.held, other.in_flight) == (1, 1, 4)


def test_what_is_out_unclaimed_is_looked_for_after_a_restart():
    agendas = [placed("a")]
    other = restarted(started(*agendas, claimed=False), [(0, agendas)])
    assert other.attempts.has_unclaimed(NOW + 2)
    assert other.attempts.skipped([0], 0, NOW + 2) == [0]


def test_a_deadline_outlives_a_restart_for_what_is_there_still():
    by = START.replace(minute=20)
    agendas = [placed("waits", held=True, expires_at=by), placed("ended", expires_at=by)]
    one = started(*agendas)
    one.settle(settled("ended"), NOW)
    other = restarted(one, [(0, agendas)])
    assert other.commands.due_at == by.timestamp()
    assert other.apply_due(by.timestamp()) == 1
    assert published(other) == [(AgendaExpired, "waits", 1)]


def test_the_priority_of_what_is_held_or_waits_for_an_instant_outlives_a_restart():
    later = START.replace(minute=30)
    agendas = [
        placed("plain"),
        placed("held", held=True),
        placed("waits", not_before=later),
    ]
    one = backlog(backoff=STEADY)
    one.place(agendas, NOW)
    for agenda_id, rank in (("held", 2), ("waits", 1)):
        assert one.apply_command(wants("reprioritise", agenda_id, priority=1, rank=rank), NOW)
    other = restarted(one, [(0, agendas)])
    other.apply_command(wants("release", "held"), NOW + 501)
    other.apply_due(later.timestamp())
    assert ids(other.choose(3, later.timestamp())) == ["waits", "held", "plain"]


def test_on_a_clock_that_is_behind_a_pause_is_no_longer_than_it_was():
    agendas = [placed("fails"), placed("lost"), placed("held"), placed("later")]
    agendas[3] = replace(agendas[3], not_before=START.replace(minute=1))
    one = started(*agendas)
    one.settle(failed("fails"), NOW)
    one.settle(failed("held"), NOW)
    one.apply_command(wants("hold", "held"), NOW)
    one.attempts.renew("lost", 1, NOW - 60)
    assert one.attempts.expire_leases(NOW + 1, NOW)
    behind = NOW - 3_600
    other = backlog(backoff=STEADY, lease_ms=60_000)
    other.restore([(0, agendas)], [one.snapshot()], behind)
    assert other.apply_due(behind + 1) == 1
    assert state(other, "lost") == (READY, 2)
    other.apply_command(wants("release", "held"), behind + 2)
    assert state(other, "held") == (WAITING, 2)
    assert other.apply_due(behind + 10) == 1
    assert state(other, "fails") == (READY, 2)
    assert other.apply_due(behind + 12) == 1
    assert state(other, "held") == (READY, 2)
    assert state(other, "later") == (WAITING, 1)


def test_what_was_accepted_by_a_clock_ahead_ages_from_its_placing_on():
    one = backlog(aging_s=10.0)
    one.place([placed("old", "ann", after=18_000, priority=9)], NOW)
    one.place([placed("new", "bob", priority=5)], NOW + 99)
    [chosen] = one.choose(1, NOW + 100)
    assert chosen.agenda_id == "old"


def test_one_to_stop_that_nobody_claimed_ends_after_a_restart_too():
    agendas = [placed("a")]
    one = started(*agendas, claimed=False)
    cancel(one, "a", NOW)
    other = restarted(one, [(0, agendas)])
    assert other.attempts.expire_leases(NOW + 561, NOW + 561) == 1
    assert published(other) == [(AgendaCancelled, "a", 1)]


def test_what_a_crash_left_of_placing_is_published_again():
    fresh = backlog()
    later = START.replace(minute=1)
    agendas = [placed("a", held=True), placed("b", not_before=later), placed("c")]
    fresh.restore([(0, agendas)], [], NOW)
    assert [kind for kind, *_ in published(fresh)] == [AgendaHeld, AgendaWaiting]
    assert fresh.ready == 1


def test_caps_hold_for_what_is_tried_again():
    one = backlog({"acme": Share(max_in_flight=1)}, backoff=STEADY)
    one.place([placed("a"), placed("b")], NOW)
    assert ids(one.choose(5, NOW)) == ["a"]
    one.settle(failed("a"), NOW)
    assert ids(one.choose(5, NOW)) == ["b"]
    one.apply_due(NOW + 10)
    assert one.choose(5, NOW) == []
    assert state(one) == (READY, 2)


@pytest.mark.parametrize("order", [1, -1])
def test_what_was_run_again_is_found_in_its_last_page_after_a_restart(order):
    """Its first page is still there, for the sake of others."""
    agendas, rerun = [placed("a"), placed("b")], [placed("a", attempt=2)]
    one = started(*agendas)
    one.settle(settled("a", 1), NOW)
    one.place(rerun, NOW)
    one.choose(1, NOW)
    one.claim("a", 2, NOW)
    fresh = backlog(backoff=STEADY, lease_ms=60_000, max_attempts=3)
    pages = [(0, agendas), (1, rerun)]
    fresh.restore(pages[::order], [one.snapshot()], NOW)
    assert state(fresh) == (CLAIMED, 2)
    assert fresh.settle(settled("a", 2), NOW)
    assert state(fresh) is None
    assert fresh.attempts.expire_leases(NOW + 61, NOW + 62) == 1, "that of b alone"


def test_of_an_attempt_that_is_lost_the_time_since_its_claim_is_delivered():
    """Nobody knows what it took, and its puller may still be at it."""
    one = started(placed("a-0", "a"), placed("a-1", "a"), placed("b-0", "b"))
    one.settle(settled("b-0"), NOW)
    assert one.attempts.expire_leases(NOW + 60.1, NOW + 61) == 2
    assert one.queue.flow("a").account.tag == pytest.approx(2 * 60.1, abs=1e-3)


# ---- attempts that wait for something ----


def deferred(agenda_id, attempt=1, *, after=0.0):
    return Settlement(
        agenda_id=agenda_id,
        attempt=attempt,
        outcome="deferred",
        message="no file yet",
        until=START + timedelta(seconds=after),
    )


def test_an_attempt_that_waits_is_followed_by_one_at_the_instant_it_names():
    one = started(placed("a"))
    assert one.settle(deferred("a", after=40), NOW)
    [event] = one.drain_outbox().lifecycle
    assert (event.attempt, event.reason, event.message) == (2, "not_yet", "no file yet")
    assert one.commands.due_at == NOW + 40
    assert one.in_flight == 0, "it holds no slot"


def test_attempts_that_wait_are_none_of_those_that_are_allowed():
    one = started(placed("a", max_attempts=1))
    for attempt in range(1, 6):
        one.settle(deferred("a", attempt), NOW)
        one.apply_due(NOW + 1)
        assert [each.attempt for each in one.choose(1, NOW)] == [attempt + 1]
        one.claim("a", attempt + 1, NOW, deferrals=attempt)
    one.settle(failed("a", 6), NOW)
    assert state(one) is None


def test_pauses_between_failures_do_not_grow_with_waits():
    one = started(placed("a"))
    one.settle(deferred("a"), NOW)
    one.apply_due(NOW + 1)
    one.choose(1, NOW)
    one.settle(failed("a", 2), NOW)
    assert one.commands.due_at == NOW + 10


def test_the_next_look_is_a_second_later_at_least_and_a_year_at_most():
    one = started(placed("a"), placed("b"))
    one.settle(deferred("a", after=-100), NOW)
    assert one.commands.due_at == NOW + MIN_DEFERRAL_S
    one.apply_due(NOW + 1)
    one.settle(deferred("b", after=1e9), NOW)
    assert one.commands.due_at == NOW + MAX_DEFERRAL_S


def test_one_that_is_to_stop_does_not_wait():
    one = started(placed("a"))
    one.apply_command(wants("cancel"), NOW)
    one.drain_outbox()
    one.settle(deferred("a", after=40), NOW)
    assert published(one) == [(AgendaCancelled, "a", 1)]


def test_one_that_is_to_be_held_waits_for_its_release_and_then_for_its_instant():
    one = started(placed("a"))
    one.apply_command(wants("hold"), NOW)
    one.settle(deferred("a", after=40), NOW)
    assert state(one) == (HELD, 2)
    one.apply_command(wants("release"), NOW)
    assert one.commands.due_at == NOW + 40


def test_a_claim_after_waits_that_a_crash_made_forgotten_is_believed():
    one = started(placed("a", max_attempts=1))
    assert one.claim("a", 3, NOW, deferrals=2)
    assert state(one) == (CLAIMED, 3)
    one.settle(failed("a", 3), NOW)
    assert state(one) is None


# ---- what ends waits from outside ----


def test_what_an_operation_waited_for_makes_it_ready_at_once():
    one = started(placed("a"))
    one.settle(deferred("a", after=4_000), NOW)
    one.drain_outbox()
    assert one.apply_command(wants("wake", operation="paid", attempt=2), NOW)
    assert published(one) == [(AgendaReady, "a", 2)]
    assert one.commands.due_at is None
    ref = one.index.find("a")
    assert one.index.overrides(ref).resolved == ("paid",)
    assert not one.apply_command(wants("wake", operation="paid", attempt=2), NOW)


@pytest.mark.parametrize("end", [failed, deferred])
def test_an_operation_that_waits_once_more_is_woken_once_more(end):
    one = started(placed("a"))
    one.settle(deferred("a", after=4_000), NOW)
    assert one.apply_command(wants("wake", operation="paid", attempt=2), NOW)
    [chosen] = one.choose(1, NOW)
    one.emitted_offsets.send(chosen.ref, 0, NOW)
    one.claim("a", 2, NOW)
    one.settle(end("a", 2), NOW)
    ref = one.index.find("a")
    assert one.index.overrides(ref).resolved == ()
    assert not one.apply_command(wants("wake", operation="paid", attempt=2), NOW), "said again"
    assert one.apply_command(wants("wake", operation="paid", attempt=3), NOW)
    assert one.index.overrides(ref).resolved == ("paid",)


def test_what_was_decided_while_an_attempt_was_out_is_not_waited_for_after_it():
    """The attempt was emitted before, so it waits for that still; the one after it does not."""
    one = started(placed("a"))
    assert one.apply_command(wants("wake", operation="paid", attempt=1), NOW)
    one.settle(deferred("a", after=4_000), NOW)
    assert one.commands.due_at == NOW + MIN_DEFERRAL_S
    one.apply_due(NOW + MIN_DEFERRAL_S)
    [chosen] = one.choose(1, NOW + MIN_DEFERRAL_S)
    one.emitted_offsets.send(chosen.ref, 0, NOW)
    one.claim("a", 2, NOW)
    one.settle(deferred("a", 2, after=4_000), NOW)
    assert one.commands.due_at == NOW + 4_000, "once"


def test_a_wake_does_not_end_the_pause_after_a_failure():
    one = started(placed("a"))
    one.settle(failed("a"), NOW)
    one.apply_command(wants("wake", operation="paid"), NOW)
    assert state(one) == (WAITING, 2)


def test_a_wake_of_what_is_held_lets_it_go_once_it_is_released():
    one = started(placed("a"))
    one.apply_command(wants("hold"), NOW)
    one.settle(deferred("a", after=4_000), NOW)
    one.apply_command(wants("wake", operation="paid"), NOW)
    assert state(one) == (HELD, 2)
    one.apply_command(wants("release"), NOW)
    assert state(one) == (READY, 2)


def test_so_many_wakes_are_kept_and_the_last_ones():
    one = started(placed("a"))
    for number in range(MAX_RESOLVED + 5):
        one.apply_command(wants("wake", operation=f"o{number}"), NOW)
    resolved = one.index.overrides(one.index.find("a")).resolved
    assert (len(resolved), resolved[-1]) == (MAX_RESOLVED, f"o{MAX_RESOLVED + 4}")


def test_what_was_waited_for_in_vain_fails_if_it_is_held_still():
    one = backlog()
    one.place([placed("a", held=True), placed("b")], NOW)
    one.drain_outbox()
    assert one.apply_command(wants("fail", reason="in vain for signal go"), NOW)
    assert not one.apply_command(wants("fail", "b"), NOW)
    drained = one.drain_outbox()
    assert [(type(event), event.message) for event in drained.lifecycle] == [
        (AgendaExhausted, "in vain for signal go")
    ]
    [letter] = drained.failed
    assert (letter.agenda_id, letter.code) == ("a", "wait_timed_out")
    assert state(one) is None
