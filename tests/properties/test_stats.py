"""What a batch counts by hour is what a plain count of its agendas says, in whatever order."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_events import accepted, claimed, emitted, failed
from lifecycle_events import succeeded as ended

from pop_stream.policy.lifecycle.stats import (
    BUCKETS,
    ENDS,
    KeyLimiter,
    StatsBatch,
    bucket_of,
    fold_accounting,
    upper_bound_s,
)

MICROSECOND = timedelta(microseconds=1)
SECONDS = st.integers(0, 4 * 3600).map(float) | st.floats(0, 4 * 3600)
SPENT = st.dictionaries(
    st.sampled_from(["http", "noop", "ffmpeg"]), st.floats(0, 5_000), max_size=3
)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])


@given(st.integers(0, 2**62))
def test_a_bucket_is_the_first_whose_bound_is_no_less(microseconds):
    bounds = [upper_bound_s(one) for one in range(BUCKETS - 1)]
    fits = [bound * 1_000_000 >= microseconds for bound in bounds]
    assert bucket_of(microseconds) == (fits.index(True) if any(fits) else BUCKETS - 1)


@st.composite
def lives(draw):
    """An agenda from its acceptance to its end, with the zone in which its end is written."""
    accepted_at = draw(SECONDS)
    starts = sorted(accepted_at + draw(SECONDS) for _ in range(draw(st.integers(1, 3))))
    events = [accepted(accepted_at, customer_id=draw(st.sampled_from(["acme", "beta"])))]
    for attempt, start in enumerate(starts, start=1):
        events += [emitted(start, attempt), claimed(start, attempt)]
        if attempt < len(starts):
            events.append(failed(start, attempt=attempt))
    last = ended(starts[-1] + draw(SECONDS), attempt=len(starts))
    zone = draw(ZONES)
    events.append(
        msgspec.structs.replace(last, spent_s=draw(SPENT), at=last.at.astimezone(zone))
    )
    return events, draw(st.sampled_from([None, "nightly", "weekly"]))


def hour_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def histogram(durations):
    counts = [0] * BUCKETS
    for one in durations:
        counts[bucket_of(one // MICROSECOND)] += 1
    return counts


def plainly(folded):
    """Rows by key, each counted by itself: ends, attempts, microseconds of work, wait, run."""
    reports, ends = defaultdict(list), defaultdict(list)
    for one, template_id in folded:
        whose = (one.summary.insight_id, one.summary.customer_id, template_id or "")
        for report in one.reports:
            for kind in {"", *report.spent_s}:
                named = {kind: report.spent_s[kind]} if kind else report.spent_s
                reports[(hour_of(report.at), *whose, kind)].append(
                    sum(round(s * 1e6) for s in named.values())
                )
        ends[(hour_of(one.summary.ended_at), *whose, "")].append(one.summary)
    return {key: row(reports[key], ends[key]) for key in {*reports, *ends}}


def row(spent, ended_ones):
    first = [
        min(at for at in (one.started_at, *(past.started_at for past in one.history)) if at)
        for one in ended_ones
    ]
    waits = [at - one.accepted_at for at, one in zip(first, ended_ones, strict=True)]
    runs = [one.ended_at - one.started_at for one in ended_ones]
    return (
        [sum(one.state is state for one in ended_ones) for state in ENDS],
        len(spent),
        sum(spent),
        sum(one // MICROSECOND for one in waits),
        sum(one // MICROSECOND for one in runs),
        histogram(waits),
        histogram(runs),
    )


@given(st.lists(lives(), max_size=12))
def test_a_batch_counts_what_each_agenda_counts_by_itself(agendas):
    folded = [(fold_accounting(None, 0, events), template) for events, template in agendas]
    batch = StatsBatch(KeyLimiter())
    for one, template_id in folded:
        batch.add(None, one.summary, one.reports, template_id)
    found = {tuple(key): msgspec.structs.astuple(one) for key, one in batch.rows.items()}
    assert found == plainly(folded)


@given(st.permutations([*product((0, 3599.9, 3600, 7300), ("acme", "beta"))]))
def test_hours_may_come_in_any_order(ends):
    batch = StatsBatch(KeyLimiter())
    for at, customer in ends:
        events = [accepted(0, customer_id=customer), claimed(0), ended(at)]
        folded = fold_accounting(None, 0, events)
        batch.add(None, folded.summary, folded.reports, None)
    counts = {
        (key.hour.hour, key.customer_id): sum(one.ends) for key, one in batch.rows.items()
    }
    first = min(hour for hour, _ in counts)
    assert counts == {
        (first + hour, customer): count
        for hour, count in ((0, 2), (1, 1), (2, 1))
        for customer in ("acme", "beta")
    }
