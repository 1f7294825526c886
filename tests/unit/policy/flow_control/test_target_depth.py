"""How far ahead the topic is filled, learned from pullers that a test plays."""

from datetime import UTC, datetime

import pytest

from pop_stream.policy.backlog.flow_counts import FlowCounts
from pop_stream.policy.flow_control.target_depth import TargetDepth

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
WANTED_S = 0.1


class Pullers:
    """Runners that take from a topic; reports of a claim arrives a trip later.

    Args:
        runners: How many run at a time.
        takes_s: How long an agenda runs.
        trip_s: From an emission to its record, and from a claim to the reports of it, together.
    """

    def __init__(self, *, runners, takes_s, trip_s, step_s=0.005):
        self.pace = TargetDepth()
        self.now = 0.0
        self.runners, self.takes_s, self.trip_s, self.step_s = runners, takes_s, trip_s, step_s
        self.emitted = 0
        self.arriving = []
        self.topic = 0
        self.running = []
        self.reports = []
        self.claimed = 0
        self.reported = 0
        self.sync_matched = 0
        self.sync_matched_s = 0.0
        self.idle = runners
        self.starved_s = 0.0
        self.waits = []

    def counts(self, ready):
        return FlowCounts(
            emitted=self.emitted,
            claimed=self.reported,
            ready=ready,
            sync_matched=self.sync_matched,
            sync_matched_s=self.sync_matched_s,
        )

    def step(self, ready):
        self.now += self.step_s
        half = self.trip_s / 2
        while self.arriving and self.arriving[0][0] <= self.now:
            self.topic += self.arriving.pop(0)[1]
        self.running = [end for end in self.running if end > self.now]
        idle = max(0, self.runners - len(self.running))
        taken = min(self.topic, idle)
        self.topic -= taken
        self.running += [self.now + self.takes_s] * taken
        if taken:
            self.reports.append((self.now + half, taken, min(taken, self.idle)))
        self.idle = idle - taken
        self.claimed += taken
        self.starved_s += self.step_s * (idle - taken) / max(1, self.runners)
        while self.reports and self.reports[0][0] <= self.now:
            _, taken, sync_matched = self.reports.pop(0)
            self.reported += taken
            self.sync_matched += sync_matched
            self.sync_matched_s += sync_matched * self.trip_s
        self.pace.observe(self.counts(ready), START + self.now)
        aim = self.pace.target(WANTED_S) or 8
        count = max(0, aim - (self.emitted - self.reported)) if ready else 0
        if count:
            self.emitted += count
            self.arriving.append((self.now + half, count))
        return aim

    def run(self, seconds, ready=1_000):
        aims = [self.step(ready) for _ in range(round(seconds / self.step_s))]
        return aims[-1]


def test_nothing_is_known_at_first():
    assert TargetDepth().target(WANTED_S) is None
    assert TargetDepth().rate_per_s == 0.0


@pytest.mark.parametrize(
    ("runners", "takes_s", "trip_s"), [(4, 0.05, 0.02), (50, 0.1, 0.03), (10, 0.02, 0.1)]
)
def test_runners_are_kept_busy_and_the_topic_short(runners, takes_s, trip_s):
    pullers = Pullers(runners=runners, takes_s=takes_s, trip_s=trip_s)
    pullers.run(20.0)
    before = pullers.starved_s
    aim = pullers.run(10.0)
    assert (pullers.starved_s - before) / 10.0 < 0.1
    rate = runners / takes_s
    assert pullers.pace.rate_per_s == pytest.approx(rate, rel=0.3)
    assert aim <= 2 + rate * max(WANTED_S, 2 * trip_s) * 4


def test_an_empty_topic_says_nothing_about_speed():
    pullers = Pullers(runners=10, takes_s=0.05, trip_s=0.01)
    pullers.run(5.0)
    rate = pullers.pace.rate_per_s
    pullers.run(30.0, ready=0)
    assert pullers.pace.rate_per_s == pytest.approx(rate, rel=0.25)
    assert pullers.pace.target(WANTED_S) is not None


def test_a_topic_that_lies_empty_most_of_the_time_may_show_more_speed_but_never_less():
    watched = Watched(ready=0)

    def claimed_at_once(agendas, at):
        watched.look(at)
        watched.look(at + 0.5, emitted=agendas, claimed=agendas)
        watched.look(at + 8)
        return watched.pace.rate_per_s

    assert claimed_at_once(6, at=8) == 6.0
    assert claimed_at_once(2, at=80) == 6.0
    assert claimed_at_once(7, at=160) == 7.0


def test_runners_that_stand_still_are_slow():
    pullers = Pullers(runners=10, takes_s=0.05, trip_s=0.01)
    pullers.run(5.0)
    pullers.runners = 0
    pullers.run(15.0)
    assert pullers.pace.rate_per_s < 10.0


def test_more_runners_are_found_out():
    pullers = Pullers(runners=4, takes_s=0.05, trip_s=0.02)
    pullers.run(10.0)
    pullers.runners = 40
    pullers.run(20.0)
    before = pullers.starved_s
    pullers.run(5.0)
    assert (pullers.starved_s - before) / 5.0 < 0.2


def test_runners_that_were_never_seen_busy_are_found_out_at_once():
    """A few at a time were submitted, so little was ever claimed; then come many."""
    pullers = Pullers(runners=8, takes_s=0.005, trip_s=0.015)
    for number in range(2_000):
        pullers.step(ready=number % 20 == 0)
    before = pullers.starved_s
    pullers.run(1.0)
    assert pullers.starved_s - before < 0.5
    before = pullers.starved_s
    pullers.run(1.0)
    assert pullers.starved_s - before < 0.1


def test_slow_work_is_not_laid_out_for_runners_that_are_busy():
    pullers = Pullers(runners=2, takes_s=30.0, trip_s=0.02)
    pullers.run(20.0)
    assert pullers.run(60.0) <= 2


@pytest.mark.parametrize("back_s", [0.02, 3_600.0])
def test_a_clock_that_is_set_back_does_not_stop_emission(back_s):
    """The least trip must not become less than nothing: the target would never recover."""
    pullers = Pullers(runners=10, takes_s=0.02, trip_s=0.02)
    pullers.run(5.0)
    pullers.now -= back_s
    pullers.arriving = [(at - back_s, count) for at, count in pullers.arriving]
    pullers.reports = [(at - back_s, *rest) for at, *rest in pullers.reports]
    pullers.running = [end - back_s for end in pullers.running]
    assert pullers.run(5.0) >= 1
    assert pullers.pace.target(WANTED_S) >= 1
    before = pullers.claimed
    pullers.run(5.0)
    assert pullers.claimed > before


def test_a_claim_reported_in_the_very_moment_of_its_emission_is_no_trip_of_nothing():
    """As when claims of a round that a crash made forgotten are believed."""
    pace = TargetDepth()
    for number in range(1, 60):
        counts = FlowCounts(emitted=10 * number, claimed=10 * number, ready=100)
        pace.observe(counts, START + number / 10)
        pace.observe(counts, START + number / 10)
    assert pace.target(WANTED_S) >= 1


class Watched:
    """A pace that is reported emissions and claims at given instants, in eighths of a second.

    Eighths are exact in binary, so that a span of one is no hair less.
    """

    def __init__(self, emitted=0, claimed=0, ready=1_000):
        self.pace = TargetDepth()
        self.emitted, self.claimed, self.ready, self.sync_matched = emitted, claimed, ready, 0
        self.sync_matched_s = 0.0
        self.look(0)

    def look(self, at, *, emitted=0, claimed=0, sync_matched=0, trip_s=0.0):
        """What happened since the last look: so many more of each."""
        self.emitted += emitted
        self.claimed += claimed
        self.sync_matched += sync_matched
        self.sync_matched_s += sync_matched * trip_s
        counts = FlowCounts(
            self.emitted, self.claimed, self.ready, self.sync_matched, self.sync_matched_s
        )
        self.pace.observe(counts, START + at / 8)

    def spans(self, first, last, **claims):
        """Eighths of a second from `first` to `last`, in each of which ten are claimed."""
        for at in range(first, last + 1):
            self.look(at, emitted=10, claimed=10, **claims)


def after_a_span(sync_matched=0, claimed=10):
    """Ten in an eighth of a second, 80 a second; reports of the first claim took as long."""
    watched = Watched()
    watched.look(0.5, emitted=claimed)
    watched.look(1, claimed=claimed, sync_matched=sync_matched)
    return watched


def about(agendas):
    return pytest.approx(1 + int(agendas), abs=1)


def test_the_target_is_what_is_claimed_in_a_few_trips_within_the_wanted_wait():
    pace = after_a_span().pace
    assert pace.target(10.0) == about(80 * 2 / 8)
    assert pace.target(0.05) == 1 + 80 * 2 / 8, "in less than two trips runners would be idle"


def test_while_runners_stand_idle_the_topic_is_filled_further_within_the_wanted_wait():
    watched = after_a_span(sync_matched=10)
    assert watched.pace.target(10.0) == about(80 * 2 / 8 * 1.4)
    watched.spans(2, 3, sync_matched=10)
    assert watched.pace.target(100.0) == about(80 * 2 / 8 * 1.4**3)
    watched.spans(4, 30, sync_matched=10)
    assert watched.pace.target(0.5) == 1 + 80 * 0.5
    assert watched.pace.target(100.0) == 1 + 80 * 64 / 8


def test_where_claims_take_long_though_runners_wait_for_them_it_is_filled_for_so_long():
    watched = after_a_span(sync_matched=10)
    watched.spans(2, 40, sync_matched=10, trip_s=1.0)
    assert watched.pace.target(0.5) == about(80 * 1.0)
    assert watched.pace.target(2.0) == 1 + 80 * 2, "no less than wanted"
    watched.spans(41, 80, sync_matched=10, trip_s=0.125)
    assert watched.pace.target(0.5) == 1 + 80 * 0.5, "it was the machine, and is over"


def test_how_long_claims_take_is_believed_after_eight_spans():
    watched = after_a_span()
    watched.spans(2, 8, sync_matched=10, trip_s=1.0)
    assert watched.pace.target(0.3) == 1 + 80 * 0.3, "it may be over soon"
    watched.spans(9, 9, sync_matched=10, trip_s=1.0)
    assert watched.pace.target(0.3) == about(80 * 1.0)


def test_the_quickest_span_of_late_tells_how_long_claims_take():
    watched = after_a_span(sync_matched=10)
    watched.spans(2, 40, sync_matched=10, trip_s=1.0)
    watched.spans(41, 41, sync_matched=10, trip_s=0.5)
    assert watched.pace.target(0.3) == about(80 * 0.5), "at once"
    watched.spans(42, 48, sync_matched=10, trip_s=1.0)
    assert watched.pace.target(0.3) == about(80 * 0.5)
    watched.spans(49, 49, sync_matched=10, trip_s=1.0)
    assert watched.pace.target(0.3) == about(80 * 1.0)


def test_how_long_claims_take_is_forgotten_once_none_is_awaited():
    watched = after_a_span(sync_matched=10)
    watched.spans(2, 40, sync_matched=10, trip_s=1.0)
    watched.spans(41, 50)
    assert watched.pace.target(0.3) == about(80 * 0.95**10)
    watched.spans(51, 80)
    assert watched.pace.target(0.3) == 1 + 80 * 0.3


def test_once_they_are_fed_it_runs_short_again():
    watched = after_a_span(sync_matched=10)
    watched.spans(2, 10, sync_matched=10)
    watched.spans(11, 20)
    assert watched.pace.target(10.0) == about(80 * 2 / 8 * 1.4**10 * 0.95**10)
    watched.spans(21, 90)
    assert watched.pace.target(10.0) == 1 + 80 * 2 / 8


def test_time_without_work_takes_nothing_back_of_what_was_learned():
    watched = after_a_span(sync_matched=10)
    watched.spans(2, 4, sync_matched=10)
    learned = watched.pace.target(10.0)
    for at in range(40, 400, 3):
        watched.look(at)
    assert watched.pace.target(10.0) == learned


@pytest.mark.parametrize(("sync_matched", "trips"), [(0, 2.0), (1, 2.0), (2, 2.8)])
def test_one_in_twenty_may_find_a_runner_idle(sync_matched, trips):
    pace = after_a_span(sync_matched, claimed=20).pace
    assert pace.target(10.0) == about(160 / 8 * trips)


@pytest.mark.parametrize(("ready", "trips"), [(10, 2.0), (11, 2.8)])
def test_who_waits_for_submissions_is_not_starved(ready, trips):
    watched = Watched(emitted=100, claimed=100, ready=ready)
    watched.look(0.5, emitted=10, sync_matched=5)
    watched.look(1, claimed=10)
    assert watched.pace.target(10.0) == about(80 / 8 * trips)


@pytest.mark.parametrize(("idle", "target"), [(5, 6), (8, 9), (10, 9)])
def test_a_few_idle_runners_are_given_one_each_whatever_the_rate(idle, target):
    watched = Watched()
    watched.look(0, emitted=10)
    watched.look(0.01, claimed=10, sync_matched=idle)
    watched.look(1)
    assert watched.pace.target(1e-4) == target
    watched.spans(2, 2)
    assert watched.pace.target(1e-4) == 1


def test_few_claims_are_looked_at_for_a_whole_second():
    watched = Watched()
    watched.look(1, emitted=20)
    watched.look(7, claimed=7)
    assert watched.pace.target(1.0) is None
    watched.look(8)
    assert watched.pace.rate_per_s == 7.0
    watched.look(9, claimed=8)
    assert watched.pace.rate_per_s == 7.0 + (64.0 - 7.0) / 4


def test_a_rate_is_smoothed_over_half_a_second():
    assert after_a_span().pace.rate_per_s == 80.0 / 4
    watched = Watched()
    watched.look(1, emitted=50)
    watched.look(4, claimed=50)
    assert watched.pace.rate_per_s == 100.0


def test_the_best_of_eight_spans_counts():
    watched = after_a_span(claimed=100)
    watched.spans(2, 8)
    assert watched.pace.target(0.25) == 1 + 800 / 4
    watched.spans(9, 9)
    assert watched.pace.target(0.25) == 1 + 80 / 4


def test_time_without_anything_on_the_topic_is_no_part_of_a_span():
    watched = Watched(ready=0)
    watched.look(50)
    watched.look(50.5, emitted=10)
    watched.look(51, claimed=10)
    assert watched.pace.rate_per_s == 80.0 / 4


def test_what_was_out_before_says_nothing_of_a_trip():
    watched = Watched(emitted=50, claimed=40)
    watched.look(1, emitted=10, claimed=10)
    assert watched.pace.target(1.0) is None
    watched.look(2, claimed=10)
    assert watched.pace.target(10.0) == about(80 * 2 / 4)


def test_a_trip_runs_from_the_emission_of_the_agenda_that_is_counted():
    watched = Watched()
    watched.look(1, emitted=10)
    watched.look(2, emitted=10)
    watched.look(3, claimed=10)
    assert watched.pace.target(100.0) == about(10 / 0.375 * 2 * 0.375)


def test_the_least_trip_is_a_millisecond():
    watched = Watched()
    watched.look(0, emitted=1_000)
    watched.look(0, claimed=1_000)
    watched.look(1)
    assert watched.pace.target(1.0) == about(8_000 * 2 * 0.001)


def test_a_clock_set_back_makes_no_shorter_trip_and_stops_nothing():
    watched = after_a_span()
    before = watched.pace.target(0.01)
    watched.look(2, emitted=10)
    watched.look(-9_000, claimed=5)
    watched.look(-9_000, claimed=5)
    assert watched.pace.target(0.01) == before
    watched.spans(-8_999, -8_980)
    assert watched.pace.target(0.01) == before
    assert watched.pace.rate_per_s == pytest.approx(80.0, rel=0.01)
