"""What is counted of agendas: buckets, limits, and which report of an attempt counts."""

import msgspec
import pytest
from lifecycle_events import START, accepted, cancelled, claimed, emitted, failed, halted
from lifecycle_events import succeeded as ended

from pop_stream.policy.lifecycle import stats
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.stats import (
    BUCKETS,
    OTHER,
    KeyLimiter,
    StatsBatch,
    StatsKey,
    bucket_of,
    fold_accounting,
    upper_bound_s,
)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0, 0), (2**-7, 0), (0.008, 1), (1, 7), (1.01, 8), (2, 8), (2.0**19, 26), (1e9, 27)],
)
def test_a_bucket_holds_what_is_up_to_its_bound(seconds, bucket):
    assert bucket_of(round(seconds * 1e6)) == bucket
    assert upper_bound_s(BUCKETS - 1) is None
    if bucket < BUCKETS - 1:
        assert seconds <= upper_bound_s(bucket)


def spent(event, **seconds):
    return msgspec.structs.replace(event, spent_s=seconds)


def rows(*events, limiter=None):
    folded = fold_accounting(None, 0, events)
    batch = StatsBatch(limiter or KeyLimiter())
    batch.add(None, folded.summary, folded.reports, None)
    return {key.operation_type: measures for key, measures in batch.rows.items()}


def test_folding_is_that_of_summaries():
    events = [accepted(), emitted(1), claimed(2), ended(9), failed(10), ended(9)]
    folded = fold_accounting(None, 0, events)
    assert (folded.summary, folded.skipped) == fold_all(None, events)


def test_an_attempt_counts_with_its_first_report():
    stopped = [spent(halted(5), http=3.0), cancelled(6), spent(halted(7), http=3.0)]
    found = rows(accepted(), claimed(1), *stopped)
    assert (found[""].attempts, found[""].worker_us) == (1, 3_000_000)
    assert found[""].ends == [0, 0, 1, 0, 0]


def test_a_report_of_an_outdated_attempt_counts_nowhere():
    late = spent(failed(20, attempt=1), http=9.0)
    found = rows(
        accepted(), claimed(1), claimed(10, 2), late, spent(ended(30, attempt=2), http=1)
    )
    assert found["http"].worker_us == 1_000_000


def test_operation_types_of_an_attempt_are_kept_apart_up_to_a_limit():
    many = {f"t{one:02}": 1.0 + one for one in range(20)}
    found = rows(accepted(), claimed(1), spent(ended(2), **many))
    assert len(found) == stats.MAX_TYPES + 2
    assert found[OTHER].worker_us == sum(1_000_000 * (1 + one) for one in range(4))


def test_rows_of_a_customer_in_an_hour_are_bounded(monkeypatch):
    monkeypatch.setattr(stats, "MAX_KEYS", 2)
    limiter = KeyLimiter()
    keys = [StatsKey(START, "files", "acme", f"t{one}", "") for one in range(4)]
    assert [limiter.limited(one).template_id for one in keys] == ["t0", "t1", OTHER, OTHER]
    assert limiter.limited(keys[0]) == keys[0]
    assert limiter.limited(keys[3]._replace(customer_id="other")).template_id == "t3"
