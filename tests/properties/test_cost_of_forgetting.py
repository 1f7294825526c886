"""What forgets its oldest entry does so at a constant cost, however many it has forgotten.

A plain dict does not: the places of deleted keys stay at its front until it is resized, and
looking for its first key passes all of them. Timed as a ratio, in processor time: the dearest
stretch of a long life against the median one of its beginning, where nothing is forgotten yet.
"""

from collections import OrderedDict
from statistics import median
from time import process_time

import pytest
from backlogs import START

from pop_stream.model.events.scheduling import AttemptStop, IdleRunners
from pop_stream.policy.attempt_stops import StopRegistry
from pop_stream.policy.backlog.flow_counts import IdleRunnerCounts
from pop_stream.policy.backlog.series import EndedReruns
from pop_stream.puller.claiming.capacity import RunDurations
from pop_stream.puller.claiming.claims import AttemptWindow

SIZE = 50_000
STRETCH = 2_000
MAX_RATIO = 12
"""A stretch at the worst point of a dict of `SIZE` costs more than 100 times the first ones."""


def window():
    kept = AttemptWindow(SIZE)
    return lambda number: kept.admit(f"{number}", 1, START)


def stops():
    kept = StopRegistry(SIZE)

    def remember(number):
        kept.remember(
            AttemptStop(agenda_id=f"{number}", insight_id="i", attempt=1, reason="cancelled")
        )

    return remember


def reruns(monkeypatch):
    monkeypatch.setattr("pop_stream.policy.backlog.series.MAX_RERUNS", SIZE)
    kept = EndedReruns()

    def remember(number):
        kept.remember(f"{number}", 2)
        kept.drain_changed()

    return remember


def idle_runners(monkeypatch):
    monkeypatch.setattr("pop_stream.policy.backlog.flow_counts.MAX_PULLERS", SIZE)
    kept = IdleRunnerCounts()
    return lambda number: kept.update([IdleRunners(f"{number}", 1)], float(number))


def runs():
    kept = RunDurations()

    def begin(number):
        kept.begin(float(number))
        if number >= SIZE:
            kept.end(float(number - SIZE))
        kept.long(2 * SIZE, number)

    return begin


def stretch_s(remember, first):
    begun = process_time()
    for number in range(first, first + STRETCH):
        remember(number)
    return process_time() - begun


def dearest(remember):
    """Of two whole lives, the dearest stretch, in those of the beginning; noise only adds."""
    costs = [stretch_s(remember, first) for first in range(0, 3 * SIZE, STRETCH)]
    quiet = SIZE // STRETCH
    return sorted(costs[quiet:])[-3] / median(costs[: quiet // 2])


@pytest.mark.parametrize("make", [window, stops, runs])
def test_forgetting_the_oldest_costs_the_same_for_ever(make):
    assert dearest(make()) < MAX_RATIO


@pytest.mark.parametrize("make", [reruns, idle_runners])
def test_forgetting_costs_the_same_whatever_the_limit_is(make, monkeypatch):
    assert dearest(make(monkeypatch)) < MAX_RATIO


def test_the_measure_finds_a_plain_dict_and_passes_an_ordered_one():
    def forgetting(kept):
        def remember(number):
            kept[number] = None
            if len(kept) > SIZE:
                del kept[next(iter(kept))]

        return remember

    assert dearest(forgetting({})) > MAX_RATIO
    assert dearest(forgetting(OrderedDict())) < MAX_RATIO
