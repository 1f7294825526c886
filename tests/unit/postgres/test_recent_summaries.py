"""Which summaries the rollup remembers, so as not to read them again."""

import msgspec
import pytest
from lifecycle_events import accepted, claimed, operation, progressed, succeeded

from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.postgres.summaries import StoredSummary, SummaryCache


def known(*lifecycle, version=1):
    summary, _ = fold_all(None, lifecycle)
    return StoredSummary(summary, version, summary.percent)


def test_what_goes_on_is_remembered_without_its_body():
    recent = SummaryCache()
    recent.put([known(accepted(), claimed(1), version=2)])
    found = recent.get("a1")
    assert (found.version, found.is_complete, found.summary.body) == (2, True, b"")
    assert found.summary.puller_id


def test_what_has_ended_is_not():
    recent = SummaryCache()
    recent.put([known(accepted(), claimed(1))])
    recent.put([known(accepted(), claimed(1), succeeded(2))])
    assert recent.get("a1") is None


def test_what_was_written_last_is_dropped_last():
    recent = SummaryCache(size=2)
    for agenda_id in ("a1", "a2", "a1", "a3"):
        recent.put([known(accepted(0, agenda_id))])
    assert [recent.get(one) is not None for one in ("a1", "a2", "a3")] == [True, False, True]
    assert len(recent) == 2


NAMES = [f"o{number}" for number in range(9)]
LARGE = msgspec.Raw(b'"' + b"x" * 5_000 + b'"')


@pytest.mark.parametrize(
    "story",
    [
        [accepted(operations=tuple(NAMES))],
        [accepted(), claimed(1), progressed(2, *map(operation, NAMES))],
        [accepted(), claimed(1), progressed(2, operation("o", result=LARGE))],
    ],
)
def test_what_is_large_is_read_again(story):
    recent = SummaryCache()
    recent.put([known(accepted())])
    recent.put([known(*story)])
    assert recent.get("a1") is None


def test_after_a_failure_nothing_is_certain():
    recent = SummaryCache()
    recent.put([known(accepted())])
    recent.clear()
    assert recent.get("a1") is None
