"""The clock of deadlines, driven by a probe that a test can read for."""

import asyncio
import time

import deadlines
import pytest
from deadlines import MAX_SLOWDOWN, quiet_s, scaled, slowdown, within


class Machine:
    """A machine that is as busy as a test wants.

    Attributes:
        slowdown: Of it, from now on.
    """

    def __init__(self):
        self.slowdown = 1.0
        self._at_s, self._quiet_s = time.monotonic(), 0.0

    def read(self):
        now_s = time.monotonic()
        self._quiet_s += (now_s - self._at_s) / self.slowdown
        self._at_s = now_s
        return deadlines._Reading(self._at_s, self._quiet_s, self.slowdown)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(deadlines, "_read", machine.read)
    return machine


async def waited_s(seconds, **limits):
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match="of a quiet machine"):
        async with within(seconds, **limits):
            await asyncio.Event().wait()
    return time.monotonic() - began_s


async def test_a_deadline_is_as_much_later_as_the_machine_is_slower(machine):
    assert await waited_s(0.1) >= 0.1
    machine.slowdown = 5.0
    assert await waited_s(0.1) >= 0.5


async def test_a_deadline_follows_what_happens_meanwhile(machine):
    asyncio.get_running_loop().call_later(0.05, setattr, machine, "slowdown", 10.0)
    assert await waited_s(0.1) >= 0.5


async def test_a_deadline_has_a_limit_where_one_is_given(machine):
    machine.slowdown = MAX_SLOWDOWN
    assert await waited_s(0.1, at_most_s=0.2) < 0.1 * MAX_SLOWDOWN


async def test_what_is_done_in_time_goes_on_and_leaves_nothing(machine):
    async with within(0.05):
        pass
    await asyncio.sleep(0.1)


OWN = TimeoutError("its own")


async def test_a_timeout_of_the_block_itself_stays_what_it_is(machine):
    with pytest.raises(TimeoutError, match=r"^its own$"):
        async with within(5):
            raise OWN


def test_durations_are_scaled(machine):
    machine.slowdown = 4.0
    assert scaled(1.5) == 6.0


async def test_the_probe_goes_on_reading_this_machine():
    first, before_s = deadlines._read(), quiet_s()
    async with within(20):
        while deadlines._read() == first:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.05)
    assert before_s < quiet_s()
    assert 1.0 <= slowdown() <= MAX_SLOWDOWN


def test_a_probe_measures_at_most_so_much():
    assert deadlines._slowdown([0.0]) == 1.0
    assert deadlines._slowdown([deadlines.QUIET_TRIP_S * 3]) == pytest.approx(3.0)
    assert deadlines._slowdown([60.0]) == MAX_SLOWDOWN
