"""What single events and short stories add up to."""

import msgspec
import pytest
from lifecycle_events import (
    BODY,
    START,
    accepted,
    at,
    cancelled,
    claimed,
    commanded,
    emitted,
    failed,
    given_up,
    halted,
    held,
    operation,
    progressed,
    readied,
    refused,
    renewed,
    reprioritised,
    restarted,
    stopping,
    succeeded,
    waiting,
)
from msgspec.structs import replace

from pop_stream.model.errors import TransitionError
from pop_stream.model.events.base import AppendedOperation, Diagnostic, PriorProgress
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.policy.lifecycle.fold import fold, fold_all
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import (
    MAX_HISTORY,
    LinkSummary,
    PastAttempt,
    Summary,
    appended_name,
)


def folded(*events, before=None):
    summary, skipped = fold_all(before, events)
    assert skipped == 0
    return summary


def test_acceptance_tells_who_what_and_where():
    summary = folded(accepted())
    assert summary == Summary(
        agenda_id="a1",
        state=State.READY,
        insight_id="files",
        customer_id="acme",
        title="Nightly ☾",
        link_id="night",
        priority=3,
        body=BODY,
        operation_names=("store", "fetch"),
        accepted_at=START,
    )
    assert summary.percent == 0
    assert summary.lease_until is None


def test_a_run_from_submission_to_end():
    summary = folded(
        accepted(),
        emitted(1),
        claimed(2),
        progressed(3, operation("fetch", percent=50)),
        succeeded(9, operation("fetch", "succeeded"), operation("store", "succeeded")),
    )
    assert (summary.state, summary.percent) == (State.SUCCEEDED, 100)
    assert summary.accepted_at == at(0)
    assert summary.emitted_at == at(1)
    assert summary.started_at == at(2)
    assert summary.ended_at == at(9)
    assert summary.puller_id == "p1"


def test_a_second_acceptance_of_an_id_changes_nothing():
    summary = folded(accepted())
    assert fold(summary, accepted(5, title="Another", customer_id="thief")) == summary


def test_what_is_folded_before_the_acceptance_is_kept():
    summary = folded(claimed(2), progressed(3, operation("fetch", percent=50)), accepted())
    assert summary.state is State.RUNNING
    assert (summary.title, summary.puller_id, summary.percent) == ("Nightly ☾", "p1", 25)


def test_the_insight_is_known_from_whatever_is_reported_first():
    assert folded(readied()).insight_id == folded(emitted()).insight_id == "files"


def test_what_arrives_late_of_a_wait_that_is_over_lets_nobody_wait():
    summary = folded(emitted(5), waiting(1))
    assert summary.state is State.EMITTED
    assert (summary.waiting_until, summary.waiting_for) == (None, None)


def test_a_failure_keeps_its_message_and_what_it_got_done():
    diagnostic = Diagnostic(message="4 bytes missing", at=at(8), code="short_read")
    summary = folded(
        accepted(),
        claimed(1),
        failed(9, operation("fetch", "failed", percent=40), diagnostics=(diagnostic,)),
    )
    assert (summary.state, summary.message) == (State.RETRYING, "disk full")
    assert summary.diagnostics == (diagnostic,)
    assert summary.percent == 50


@pytest.mark.parametrize("first", [succeeded(5), failed(5), failed(5, retryable=False)])
@pytest.mark.parametrize("second", [succeeded(4), failed(4)])
def test_the_first_outcome_stands(first, second):
    summary = folded(accepted(), first)
    if type(first) is type(second):
        assert fold(summary, second).ended_at == at(4)
    else:
        with pytest.raises(TransitionError):
            fold(summary, second)


def test_facts_that_arrive_after_the_end_complete_the_summary():
    early = folded(succeeded(9, operation("store", "succeeded")))
    summary, skipped = fold_all(
        early,
        [progressed(5, operation("fetch", "succeeded")), claimed(2), emitted(1), accepted()],
    )
    assert skipped == 0
    assert summary.state is State.SUCCEEDED
    assert set(summary.operations) == {"fetch", "store"}
    assert (summary.emitted_at, summary.started_at) == (at(1), at(2))


def test_a_new_attempt_keeps_what_succeeded_and_how_far_the_rest_was():
    summary = folded(
        accepted(),
        emitted(1),
        claimed(2),
        progressed(3, operation("fetch", "succeeded"), operation("store", percent=70)),
        emitted(60, attempt=2),
    )
    assert (summary.state, summary.attempt) == (State.EMITTED, 2)
    assert summary.operations["fetch"].state == "succeeded"
    store = summary.operations["store"]
    assert (store.state, store.percent, store.reported_at) == ("waiting", 0, None)
    assert store.prior == PriorProgress(attempt=1, state="running", percent=70)
    assert summary.percent == 50
    assert (summary.started_at, summary.puller_id, summary.last_heartbeat_at) == (
        None,
        "",
        None,
    )
    assert summary.emitted_at == at(60)


def test_prior_progress_outlives_attempts_that_did_not_begin_the_operation():
    summary = folded(
        accepted(),
        progressed(3, operation("store", percent=70)),
        claimed(60, attempt=2),
        claimed(90, attempt=3),
        progressed(95, operation("store", percent=10), attempt=3),
    )
    store = summary.operations["store"]
    assert (store.state, store.percent) == ("running", 10)
    assert store.prior == PriorProgress(attempt=1, state="running", percent=70)


def test_a_later_try_is_further_whatever_its_percent():
    tries = [
        progressed(3, replace(operation("store", percent=80), tries=1)),
        progressed(4, replace(operation("store", percent=5), tries=2)),
    ]
    for order in (tries, tries[::-1]):
        assert folded(accepted(), *order).operations["store"].percent == 5


@pytest.mark.parametrize(
    ("state", "further"),
    [("waiting", "running"), ("running", "failed"), ("failed", "succeeded")],
)
def test_no_operation_goes_back_whatever_is_reported_later(state, further):
    known = progressed(4, operation("store", further, percent=0))
    late = progressed(5, operation("store", state, percent=100))
    assert folded(accepted(), known, late).operations["store"].state == further


def appended(name, by="fetch", seconds=3):
    raw = msgspec.Raw(msgspec.json.encode({"name": name, "type": "work"}))
    return AppendedOperation(by=by, at=at(seconds), operation=raw)


def names_of(summary):
    return [appended_name(one) for one in summary.appended]


def test_appended_operations_count_once_in_any_order_and_stay_for_the_next_attempt():
    stories = [
        replace(progressed(3), appended=(appended("one"), appended("two", seconds=4))),
        replace(progressed(5), appended=(appended("one", seconds=5), appended("fetch"))),
    ]
    for order in (stories, stories[::-1]):
        summary = folded(accepted(), *order, succeeded(6, operation("fetch", "succeeded")))
        assert names_of(summary) == ["one", "two"]
    summary = folded(
        accepted(), *stories, progressed(6, operation("one", "succeeded")), emitted(60, 2)
    )
    assert names_of(summary) == ["one", "two"]
    assert summary.percent == 25  # of fetch, store, one and two


def test_what_an_operation_appended_goes_when_it_is_reset_and_what_that_appended_too():
    ended = folded(
        accepted(),
        replace(progressed(3), appended=(appended("one"), appended("two", by="one"))),
        replace(progressed(4), appended=(appended("three", by="store"),)),
        succeeded(5, *[operation(n, "succeeded") for n in ("fetch", "store", "one", "two")]),
    )
    again = folded(restarted(9, reset=("fetch",)), before=ended)
    assert names_of(again) == ["three"]
    assert set(again.operations) == {"store"}
    assert again.unfinished == ("fetch", "three")


def test_a_rerun_of_all_begins_as_the_agenda_was_accepted():
    ended = folded(
        accepted(),
        replace(progressed(3), appended=(appended("one"),)),
        failed(5, operation("fetch", "succeeded"), operation("one", percent=40)),
    )
    again = folded(restarted(9, reset="all"), before=ended)
    assert (again.appended, again.operations) == ((), {})


def test_a_rerun_goes_on_where_the_attempt_before_ended():
    """What succeeded stays, whoever appended it; how far the others were stays too."""
    ended = folded(
        accepted(),
        replace(progressed(3), appended=(appended("one", by="store"), appended("two"))),
        failed(
            5,
            operation("fetch", "succeeded"),
            operation("store", "failed", percent=70),
            operation("one", "succeeded"),
            operation("two", percent=40),
        ),
    )
    again = folded(restarted(9), before=ended)
    assert names_of(again) == ["one", "two"]
    assert again.unfinished == ("store", "two")
    priors = {name: one.prior.percent for name, one in again.operations.items() if one.prior}
    assert priors == {"store": 70, "two": 40}


def test_what_was_appended_after_a_rerun_was_wanted_is_not_lost():
    """The command was made of a summary that did not know of it yet."""
    late = replace(progressed(4), appended=(appended("late", by="store"), appended("gone")))
    again = folded(accepted(), late, failed(5), restarted(9, reset=("fetch",)))
    assert names_of(again) == ["late"]


def test_an_appended_operation_that_was_never_reported_on_has_not_run():
    story = replace(progressed(3), appended=(appended("one"),))
    summary = folded(accepted(), story, succeeded(6))
    assert (summary.state, round(summary.percent)) == (State.SUCCEEDED, 67)
    assert summary.unfinished == ("store", "fetch", "one")


@pytest.mark.parametrize(
    "late", [emitted(9), claimed(9), renewed(9), progressed(9), succeeded(9), failed(9)]
)
def test_an_outdated_attempt_is_not_applied(late):
    summary = folded(accepted(), claimed(2, attempt=2))
    with pytest.raises(TransitionError, match="outdated"):
        fold(summary, late)


def test_no_attempt_follows_an_end():
    summary = folded(accepted(), succeeded(5))
    with pytest.raises(TransitionError, match="ended"):
        fold(summary, emitted(9, attempt=2))


def test_a_refusal_says_why():
    summary = folded(refused(3))
    assert (summary.state, summary.customer_id) == (State.REFUSED, "acme")
    assert [issue.message for issue in summary.issues] == ["fits no insight"]
    assert summary.ended_at == at(3)


def test_of_two_refusals_the_later_counts():
    later = refused(3, "too large")
    assert folded(refused(1), later) == folded(later, refused(1)) == folded(later)


def test_of_two_refusals_at_one_instant_the_first_counts():
    assert folded(refused(5, "first"), refused(5, "second")).issues[0].message == "first"


def test_an_event_without_an_insight_takes_none_away():
    story = [accepted(), emitted(1), claimed(2)]
    assert folded(*story, replace(progressed(3), insight_id="")).insight_id == "files"
    assert folded(
        replace(story[1], insight_id="other"), before=folded(accepted())
    ).insight_id == ("files")


def test_a_wait_without_a_message_keeps_the_one_before():
    story = [
        accepted(),
        replace(waiting(1), message="no luck"),
        replace(waiting(2), message=""),
    ]
    assert folded(*story).message == "no luck"


def test_an_id_that_was_refused_can_be_submitted_again():
    assert folded(refused(1), accepted(5)) == folded(accepted(5))
    assert folded(refused(1), emitted(6), accepted(5)) == folded(emitted(6), accepted(5))


def test_an_accepted_agenda_cannot_be_refused():
    summary = folded(accepted())
    with pytest.raises(TransitionError):
        fold(summary, refused(5))


def test_the_lease_runs_from_the_last_sign_of_life():
    assert folded(accepted(), claimed(0)).lease_until == at(60)
    assert folded(claimed(0), renewed(20)).lease_until == at(80)
    assert folded(claimed(0), progressed(30), renewed(20)).lease_until == at(90)
    assert folded(claimed(0), succeeded(9)).lease_until is None
    assert folded(progressed(30)).lease_until is None


def test_the_first_claim_starts_the_attempt():
    assert folded(claimed(5), claimed(3), claimed(4)).started_at == at(3)
    assert folded(renewed(3), claimed(2)).started_at == at(2)


def test_the_furthest_report_of_an_operation_counts():
    waiting, half = operation("fetch", "waiting"), operation("fetch", percent=50)
    failing, done = operation("fetch", "failed"), operation("fetch", "succeeded")
    reports = [waiting, half, failing, done]
    for further in range(1, len(reports)):
        for one in range(further):
            summary = folded(progressed(1, reports[further]), progressed(2, reports[one]))
            assert summary.operations["fetch"].state == reports[further].state


def test_of_reports_equally_far_the_later_counts():
    first = progressed(1, operation("fetch", message="unpacking"))
    second = progressed(2, operation("fetch", message="archiving"))
    for story in ([first, second], [second, first]):
        assert folded(*story).operations["fetch"].message == "archiving"


def test_a_report_may_carry_its_own_instant():
    one = operation("fetch", message="unpacking", reported_at=at(5))
    other = operation("fetch", message="archiving")
    summary = folded(progressed(9, one), progressed(7, other))
    assert summary.operations["fetch"].message == "archiving"
    assert summary.operations["fetch"].reported_at == at(7)


def test_of_reports_at_one_instant_the_same_counts_in_any_order():
    reports = [progressed(1, operation("fetch", message=one)) for one in ("one", "other")]
    assert folded(*reports) == folded(*reversed(reports))


def test_one_event_may_report_an_operation_twice():
    summary = folded(
        progressed(1, operation("fetch", percent=80), operation("fetch", percent=20))
    )
    assert summary.operations["fetch"].percent == 80


@pytest.mark.parametrize(
    ("operations", "percent"),
    [
        ([], 0),
        ([operation("fetch", percent=30)], 15),
        ([operation("fetch", percent=-5), operation("store", percent=130)], 50),
        ([operation("fetch", "failed"), operation("store", percent=50)], 75),
        ([operation("fetch"), operation("made", "succeeded"), operation("up", percent=20)], 30),
    ],
)
def test_percent_is_the_mean_over_all_operations(operations, percent):
    assert folded(accepted(), progressed(1, *operations)).percent == percent


def test_percent_is_zero_while_no_operation_is_known():
    assert folded(emitted(1)).percent == 0


def test_folding_several_events_counts_those_not_applied():
    summary, skipped = fold_all(None, [accepted(), succeeded(5), failed(6), refused(7)])
    assert (summary.state, skipped) == (State.SUCCEEDED, 2)


def test_of_one_outcome_reported_twice_the_earlier_counts():
    assert folded(succeeded(5), succeeded(7)).ended_at == at(5)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("ready", "ready"),
        ("ready emitted", "emitted"),
        ("ready emitted running", "running"),
        ("ready succeeded", "running"),
        ("running failed", "running"),
        ("succeeded", "succeeded"),
        ("succeeded failed", "failed"),
        ("succeeded refused", "refused"),
        ("succeeded cancelled", "cancelled"),
        ("succeeded cancelled expired", "expired"),
        ("refused failed expired", "failed"),
        ("succeeded retrying", "running"),
        ("held waiting", "waiting"),
        ("held waiting ready", "ready"),
        ("held", "held"),
    ],
)
def test_a_link_is_as_far_as_its_agendas(states, state):
    counts = {State(one): 2 for one in states.split()}
    link = LinkSummary(link_id="night", counts=counts, percent=0)
    assert link.state is State(state)
    assert link.total == 2 * len(counts)


def test_a_retry_remembers_the_attempt_before_it():
    summary = folded(
        accepted(),
        emitted(1),
        claimed(2),
        failed(9),
        waiting(10, attempt=2, until=at(40)),
    )
    assert (summary.state, summary.attempt) == (State.WAITING, 2)
    assert (summary.waiting_until, summary.waiting_for) == (at(40), "retry")
    assert summary.history == (
        PastAttempt(
            attempt=1,
            outcome="failed",
            puller_id="p1",
            emitted_at=at(1),
            started_at=at(2),
            ended_at=at(9),
            message="disk full",
        ),
    )
    ready = folded(readied(40, attempt=2), before=summary)
    assert (ready.state, ready.waiting_until, ready.waiting_for) == (State.READY, None, None)


def test_an_attempt_that_fell_silent_is_remembered_as_lost():
    full = Diagnostic(message="disk full", at=at(8), code="full")
    half = replace(operation("fetch", "running", percent=40), diagnostics=(full,))
    summary = folded(
        accepted(),
        claimed(2),
        failed(9, diagnostics=(full,)),
        claimed(20, attempt=2),
        progressed(30, half, attempt=2),
        waiting(60, attempt=3, reason="lost"),
    )
    assert [one.outcome for one in summary.history] == ["failed", "lost"]
    # What was reported of either stays.
    assert [one.diagnostics for one in summary.history] == [(full,), ()]
    assert summary.operations["fetch"].prior == PriorProgress(
        attempt=2, state="running", percent=40, diagnostics=(full,)
    )


def test_giving_up_is_the_end_of_the_attempt_that_failed():
    summary = folded(accepted(), claimed(2), failed(9), given_up(10))
    assert (summary.state, summary.message, summary.ended_at) == (
        State.FAILED,
        "disk full",
        at(9),
    )
    assert folded(accepted(), claimed(2), given_up(10), failed(9)) == summary


def test_a_cancelled_agenda_says_why_whatever_its_puller_says_later():
    stopped = folded(
        accepted(), claimed(2), stopping(5), halted(6), cancelled(7, message="by Ann")
    )
    assert (stopped.state, stopped.message, stopped.stopping) == (
        State.CANCELLED,
        "by Ann",
        None,
    )
    assert folded(failed(6), before=stopped).message == "by Ann"
    assert folded(stopping(8), before=stopped).stopping is None


def test_what_is_to_stop_says_so_until_it_has():
    assert folded(accepted(), claimed(2), stopping(5)).stopping == "cancelled"


def test_an_agenda_that_is_run_again_keeps_what_it_is_asked_to():
    ended = folded(
        accepted(),
        claimed(2),
        failed(
            9, operation("fetch", "succeeded"), operation("store", "succeeded"), retryable=False
        ),
    )
    again = folded(restarted(20, attempt=2, reset=("store",)), before=ended)
    assert (again.state, again.attempt, set(again.operations)) == (State.READY, 2, {"fetch"})
    assert [one.outcome for one in again.history] == ["failed"]
    assert again.accepted_at == at(0)


def test_what_is_wanted_changes_nothing_by_itself():
    summary = folded(accepted())
    assert fold(summary, commanded(3)) == summary
    with pytest.raises(TransitionError, match="nothing is known"):
        fold(None, commanded(3))


def test_another_priority_is_shown():
    assert folded(accepted(), reprioritised(3, priority=1)).priority == 1


def test_a_wait_folded_again_after_the_emission_changes_nothing():
    summary = folded(accepted(), emitted(5))
    assert folded(waiting(2), held(3), before=summary) == summary


def test_only_so_many_attempts_are_remembered():
    lost = [waiting(n, attempt=n, reason="lost") for n in range(2, MAX_HISTORY + 5)]
    history = folded(accepted(), *lost).history
    assert [one.attempt for one in history] == [*range(4, MAX_HISTORY + 4)]


def test_what_was_removed_while_someone_ran_it_again_is_known_again():
    body = (
        b'{"id": "a1", "customer_id": "acme", "title": "Nightly", '
        b'"operations": [{"name": "fetch", "type": "http"}]}'
    )
    placed = RoutedAgenda(
        agenda_id="a1",
        customer_id="acme",
        accepted_at=at(90),
        agenda=msgspec.Raw(body),
        attempt=3,
        priority=2,
    )
    event = replace(restarted(90, attempt=3), routed=msgspec.Raw(encode(placed)))
    again = folded(event, emitted(91, attempt=3))
    assert (again.state, again.attempt, again.priority) == (State.EMITTED, 3, 2)
    assert (again.customer_id, again.insight_id, again.body) == ("acme", "files", body)
    assert again.operation_names == ("fetch",)
    assert again.accepted_at == at(90)
    assert again.title == "Nightly"
    # One that tells nothing readable is known by its id alone.
    for nothing in (
        b"{}",
        b'{"agenda_id": 1}',
        encode(replace(placed, agenda=msgspec.Raw(b"[]"))),
    ):
        bare = folded(replace(event, routed=msgspec.Raw(nothing)))
        assert (bare.state, bare.attempt, bare.customer_id) == (State.READY, 3, "")
    # One that is known stays what it was.
    known = folded(event, before=folded(accepted(), succeeded(9)))
    assert (known.priority, known.accepted_at) == (3, START)


@pytest.mark.parametrize("reported_of", [b"7", b"{", b'{"name": 7}', b"{}", b'{"name": "x"}'])
def test_what_is_appended_and_is_no_operation_is_not_applied(reported_of):
    """Nobody could ever run it, so the agenda could never end."""
    one = AppendedOperation(by="fetch", at=at(3), operation=msgspec.Raw(reported_of))
    story = replace(progressed(3, operation("fetch", percent=5)), appended=(one,))
    with pytest.raises(TransitionError, match="an appended operation of a1 is none"):
        fold(folded(accepted()), story)
