"""How far ahead the topic is filled, learned from pullers that a test plays."""

from datetime import UTC, datetime, timedelta

import pytest

from pop_stream.core.pace import Counts, Pace

START = datetime(2026, 1, 1, tzinfo=UTC)
WANTED_S = 0.1


class Pullers:
    """Runners that take from a topic; news of a claim arrives a trip later.

    Args:
        runners: How many run at a time.
        takes_s: How long an agenda runs.
        trip_s: From an emission to its record, and from a claim to the news of it, together.
    """

    def __init__(self, *, runners, takes_s, trip_s, step_s=0.005):
        self.pace = Pace()
        self.now = 0.0
        self.runners, self.takes_s, self.trip_s, self.step_s = runners, takes_s, trip_s, step_s
        self.emitted = 0
        self.arriving = []
        self.topic = 0
        self.running = []
        self.news = []
        self.claimed = 0
        self.heard = 0
        self.awaited = 0
        self.idle = runners
        self.starved_s = 0.0
        self.waits = []

    def counts(self, ready):
        return Counts(
            emitted=self.emitted,
            claimed=self.heard,
            ready=ready,
            awaited=self.awaited,
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
            self.news.append((self.now + half, taken, min(taken, self.idle)))
        self.idle = idle - taken
        self.claimed += taken
        self.starved_s += self.step_s * (idle - taken) / max(1, self.runners)
        while self.news and self.news[0][0] <= self.now:
            _, taken, awaited = self.news.pop(0)
            self.heard += taken
            self.awaited += awaited
        self.pace.observe(self.counts(ready), START + timedelta(seconds=self.now))
        aim = self.pace.target(WANTED_S) or 8
        count = max(0, aim - (self.emitted - self.heard)) if ready else 0
        if count:
            self.emitted += count
            self.arriving.append((self.now + half, count))
        return aim

    def run(self, seconds, ready=1_000):
        aims = [self.step(ready) for _ in range(round(seconds / self.step_s))]
        return aims[-1]


def test_nothing_is_known_at_first():
    assert Pace().target(WANTED_S) is None
    assert Pace().rate_per_s == 0.0


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
    pullers.news = [(at - back_s, *rest) for at, *rest in pullers.news]
    pullers.running = [end - back_s for end in pullers.running]
    assert pullers.run(5.0) >= 1
    assert pullers.pace.target(WANTED_S) >= 1
    before = pullers.claimed
    pullers.run(5.0)
    assert pullers.claimed > before


def test_a_claim_heard_in_the_very_moment_of_its_emission_is_no_trip_of_nothing():
    """As when claims of a round that a crash made forgotten are believed."""
    pace = Pace()
    for number in range(1, 60):
        counts = Counts(emitted=10 * number, claimed=10 * number, ready=100)
        pace.observe(counts, START + timedelta(seconds=number / 10))
        pace.observe(counts, START + timedelta(seconds=number / 10))
    assert pace.target(WANTED_S) >= 1
