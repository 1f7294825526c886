"""What a backlog makes of notes of the relay, and of ticks."""

from datetime import timedelta

import pytest
from backlogs import START, backlog, placed, settled

from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    IdleRunners,
    InsightAttemptsReported,
    InsightTick,
)
from pop_stream.policy.backlog.reports import apply_relayed, apply_tick

NOW = START.timestamp()


def started(*names, **insight):
    """A backlog of these agendas, each of them out and unclaimed."""
    one = backlog(lease_ms=60_000, **insight)
    one.place([placed(name) for name in names], NOW)
    for chosen in one.choose(len(names), NOW):
        one.emitted_offsets.send(chosen.ref, 0, NOW)
    one.drain_outbox()
    return one


def noted(**reported):
    return InsightAttemptsReported(insight_id="media", **reported)


def tick(**known):
    return InsightTick(insight_id="media", **known)


def test_a_success_that_was_reported_with_a_cancel_is_not_undone():
    one = started("a")
    cancel = Command(agenda_id="a", action="cancel")
    apply_relayed(one, noted(commands=(cancel,), settlements=(settled("a"),)), NOW)
    assert not one.drain_outbox()
    assert one.commands.ignored == 1


def test_claims_for_which_a_runner_waited_are_counted():
    one = started("a", "b")
    apply_relayed(
        one, noted(claims=(Claim("a", 1, sync_matched=True), Claim("b", 1))), NOW + 0.5
    )
    assert (one.claimed, one.sync_matched, one.sync_matched_s) == (2, 1, 0.5)


def test_runners_that_are_left_are_counted_by_what_pullers_said_last():
    one = started("a", "b")
    apply_relayed(
        one,
        noted(claims=(Claim("a", 1),), idle=(IdleRunners("p", 7), IdleRunners("q", 2))),
        NOW,
    )
    apply_relayed(one, noted(claims=(Claim("b", 1),), idle=(IdleRunners("p", 5),)), NOW + 0.5)
    apply_relayed(one, noted(settlements=(settled("a"),)), NOW + 0.75)
    assert one.idle.count(NOW + 0.75) == 7


def test_heartbeats_are_applied():
    one = started("a")
    apply_relayed(one, noted(claims=(Claim("a", 1),)), NOW)
    apply_relayed(one, noted(heartbeats=(Claim("a", 1),)), NOW + 30)
    assert one.attempts.lease_ends_at == NOW + 90


@pytest.mark.parametrize(
    ("lag", "emitted", "ends_at"),
    [(0, 1, NOW + 65), (0, 0, None), (0, 7, NOW + 65), (1, 7, None)],
)
def test_what_was_emitted_after_a_look_at_the_lag_was_not_skipped(lag, emitted, ends_at):
    """A look by who had the insight before may count more than are known here."""
    one = started("a")
    apply_tick(one, tick(lags=(lag,), emitted=emitted), NOW + 5)
    assert one.attempts.lease_ends_at == ends_at


def test_with_a_lag_unknown_nothing_was_skipped():
    one = started("a")
    apply_tick(one, tick(emitted=1), NOW + 5)
    apply_tick(one, tick(lags=(0,)), NOW + 5)
    assert one.attempts.lease_ends_at is None


@pytest.mark.parametrize(("reported_s", "lost"), [(61, 1), (60, 0), (3_600, 0)])
def test_a_lease_ends_by_what_was_reported_but_not_by_a_clock_ahead(reported_s, lost):
    one = started("a")
    apply_relayed(one, noted(claims=(Claim("a", 1),)), NOW)
    now = NOW + 30 if reported_s > 100 else NOW + 90
    apply_tick(one, tick(relayed_until=START + timedelta(seconds=reported_s)), now)
    assert one.attempts.leases_expired == lost


def test_idle_runners_are_reported_if_all_pullers_say_so_and_pull_nothing_else():
    one = started("a", "b")
    assert not one.idle.are_reported(NOW)
    alone, shared = IdleRunners("p", 0, insights=1), IdleRunners("q", 0, insights=2)
    apply_relayed(one, noted(idle=(alone,)), NOW)
    assert one.idle.are_reported(NOW)
    for other in (shared, IdleRunners("q", 0)):
        apply_relayed(one, noted(idle=(other,)), NOW)
        assert not one.idle.are_reported(NOW + 3_600)
    assert one.idle.are_reported(NOW + 86_401)  # it has claimed nothing for a day
    apply_relayed(one, noted(idle=(shared,)), NOW)
    apply_relayed(one, noted(idle=(IdleRunners("q", 0, insights=1),)), NOW)
    assert one.idle.are_reported(NOW)
