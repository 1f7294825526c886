from datetime import timedelta

import pytest
from backlogs import START

from pop_stream.model.events.scheduling import AttemptStop
from pop_stream.policy.attempt_stops import StopRegistry

LATER = START + timedelta(microseconds=1)


def stop(agenda_id="a1", attempt=1, reason="cancelled", accepted_at=None):
    return AttemptStop(
        agenda_id=agenda_id,
        insight_id="media",
        attempt=attempt,
        reason=reason,
        accepted_at=accepted_at,
    )


def test_an_agenda_that_uses_an_id_anew_does_not_heed_stops_of_the_one_before():
    """Else each of its attempts would be stopped, up to the one that was stopped then."""
    stops = StopRegistry()
    stops.remember(stop(attempt=3, accepted_at=START))
    assert stops.of("a1", 1, LATER) is None
    assert stops.of("a1", 1, START) == stops.of("a1", 1) == stop(attempt=3, accepted_at=START)
    anew = stop(attempt=1, accepted_at=LATER)
    stops.remember(anew)
    stops.remember(stop(attempt=3, accepted_at=START))
    assert stops.of("a1", 1, LATER) == anew
    stops.remember(stop(attempt=2))
    assert stops.of("a1", 2, LATER) == stop(attempt=2), "it may be of either"


def test_stop_covers_its_attempt_and_those_before_but_none_after():
    stops = StopRegistry()
    stops.remember(stop(attempt=2))
    assert stops.of("a1", 1) == stops.of("a1", 2) == stop(attempt=2)
    assert stops.of("a1", 3) is None
    assert stops.of("a2", 1) is None


def test_stop_of_an_older_attempt_does_not_replace_a_newer_one():
    stops = StopRegistry()
    stops.remember(stop(attempt=2))
    stops.remember(stop(attempt=1, reason="outdated"))
    assert stops.of("a1", 2) == stop(attempt=2)


def test_what_was_named_longest_ago_is_forgotten_first():
    stops = StopRegistry(size=2)
    for agenda_id in ("a1", "a2", "a1", "a3"):
        stops.remember(stop(agenda_id))
    assert len(stops) == 2
    assert stops.of("a2", 1) is None
    assert stops.of("a1", 1) is not None


def test_memory_for_nothing_is_refused():
    with pytest.raises(ValueError, match="size must be at least 1"):
        StopRegistry(0)
