"""The fold bears duplicates, any order within an attempt, and whatever comes too late."""

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.errors import TransitionError
from pop_stream.model.events.base import OperationProgress, OperationWait, RefusedIssue
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaDeferred,
    AgendaEmitted,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaRefused,
    AgendaResolved,
    AgendaSucceeded,
)
from pop_stream.policy.lifecycle.fold import fold, fold_all
from pop_stream.policy.lifecycle.states import State

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("fetch", "pack", "store")

instants = st.integers(0, 50).map(lambda seconds: START + timedelta(seconds=seconds))

waits = st.builds(OperationWait, since=instants, until=instants, kind=st.just("check"))
deferred = st.builds(
    OperationProgress,
    name=st.sampled_from(NAMES),
    state=st.just("waiting"),
    ended_at=instants,
    wait=waits,
)

operations = st.lists(
    deferred
    | st.builds(
        OperationProgress,
        name=st.sampled_from([*NAMES, "made up"]),
        state=st.sampled_from(["waiting", "running", "succeeded", "failed"]),
        percent=st.floats(-10, 120),
        message=st.sampled_from(["", "reading", "writing"]),
        ended_at=st.none() | instants,
        result=st.sampled_from([msgspec.UNSET, msgspec.Raw(b"1")]),
    ),
    max_size=4,
).map(tuple)

accepted = st.builds(
    AgendaAccepted,
    agenda_id=st.just("a1"),
    at=st.just(START),
    insight_id=st.just("files"),
    customer_id=st.just("acme"),
    operations=st.just(NAMES),
    agenda=st.just(msgspec.Raw(b"{}")),
)


def events_of(attempt):
    """What a sound attempt consists of: one puller, and one outcome at most."""
    build = partial(
        st.builds,
        agenda_id=st.just("a1"),
        insight_id=st.just("files"),
        attempt=st.just(attempt),
        at=instants,
    )
    lease = {"puller_id": st.just("p1"), "lease_ms": st.just(60_000)}
    outcome = build(AgendaSucceeded, operations=operations) | build(
        AgendaFailed, operations=operations, message=st.just("disk full")
    )
    outcome |= build(
        AgendaDeferred, operations=operations, until=instants, message=st.just("no file yet")
    )
    running = (
        build(AgendaEmitted)
        | build(AgendaClaimed, **lease)
        | build(AgendaHeartbeat, **lease)
        | build(AgendaProgressed, operations=operations)
        | build(
            AgendaResolved,
            operation=st.sampled_from(NAMES),
            outcome=st.sampled_from(["succeeded", "failed"]),
            result=st.sampled_from([msgspec.UNSET, msgspec.Raw(b"1")]),
        )
    )
    return st.tuples(
        st.lists(accepted, max_size=1), st.lists(running), st.lists(outcome, max_size=1)
    ).map(lambda parts: [event for part in parts for event in part])


sound = st.integers(1, 3).flatmap(events_of)


@st.composite
def retold(draw):
    """A sound attempt, and the same in another order with some of it reported again."""
    events = draw(sound)
    again = draw(st.lists(st.sampled_from(events))) if events else []
    return events, draw(st.permutations(events + again))


refusals = st.builds(
    AgendaRefused,
    agenda_id=st.just("a1"),
    at=instants,
    issues=st.just((RefusedIssue(field="id", value="", message="taken"),)),
)

anything = st.lists(
    refusals
    | accepted
    | st.integers(0, 3)
    .flatmap(events_of)
    .flatmap(lambda events: st.sampled_from(events) if events else accepted),
    max_size=30,
)


@given(retold())
def test_order_and_number_of_deliveries_do_not_matter(story):
    events, again = story
    assert fold_all(None, events) == fold_all(None, again)


@given(retold())
def test_percents_agree_whatever_the_order(story):
    (one, _), (other, _) = (fold_all(None, events) for events in story)
    assert (one and one.percent) == (other and other.percent)


@given(sound, st.data())
def test_an_event_reported_again_changes_nothing(events, data):
    summary, _ = fold_all(None, events)
    if events:
        assert fold(summary, data.draw(st.sampled_from(events))) == summary


@given(anything)
def test_an_end_is_never_left(events):
    summary = None
    for event in events:
        before, (summary, _) = summary, fold_all(summary, [event])
        if before is not None and before.state in {State.SUCCEEDED, State.FAILED}:
            assert summary.state is before.state
            assert summary.attempt == before.attempt


@given(events_of(3), events_of(2) | events_of(1))
def test_an_outdated_attempt_changes_nothing(events, outdated):
    summary, _ = fold_all(None, events)
    if summary is None or summary.attempt < 3:
        return
    late = [event for event in outdated if not isinstance(event, AgendaAccepted)]
    assert fold_all(summary, late) == (summary, len(late))


@given(anything)
def test_an_attempt_is_never_taken_back(events):
    summary = None
    for event in events:
        before, (summary, _) = summary, fold_all(summary, [event])
        if before is not None and before.state is not State.REFUSED:
            assert summary.attempt >= before.attempt


@given(anything)
def test_percent_stays_within_bounds(events):
    summary, _ = fold_all(None, events)
    assert summary is None or 0 <= summary.percent <= 100


@given(anything)
def test_every_event_is_applied_or_skipped(events):
    summary, skipped = None, 0
    for event in events:
        try:
            summary = fold(summary, event)
        except TransitionError:
            skipped += 1
    assert fold_all(None, events) == (summary, skipped)
