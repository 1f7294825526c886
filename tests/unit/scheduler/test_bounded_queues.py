"""Faust's queues are bounded by bytes as well as by records."""

from types import SimpleNamespace

import pytest

from pop_stream.scheduler.faust.app import _BUFFERED_RECORDS, MAX_QUEUED_BYTES, faust_app
from pop_stream.settings import Settings

HIGH, LOW = 0.8, 0.4


@pytest.fixture
def queue():
    return faust_app(Settings()).FlowControlQueue(_BUFFERED_RECORDS, clear_on_resume=True)


def put(queue, size, most=10_000):
    """Put events of a size until the queue asks to stop; how many that were."""
    signals, value = [], range(size)  # of that length, and shown in a few words
    for number in range(most):
        event = SimpleNamespace(message=SimpleNamespace(value=value))
        drop = signals.clear
        queue.put_nowait_enhanced(
            event, on_pressure_high=lambda: signals.append("full"), on_pressure_drop=drop
        )
        if signals:
            return number, signals
    return most, signals


@pytest.mark.parametrize("size", [900_000, 256 * 1024, 64 * 1024])
def test_large_records_fill_it_by_their_bytes(queue, size):
    count, _ = put(queue, size)
    assert count * size <= MAX_QUEUED_BYTES
    assert (count + 1) * size > HIGH * MAX_QUEUED_BYTES - size


def test_small_ones_fill_it_by_their_number(queue):
    count, _ = put(queue, 300)
    assert count == pytest.approx(HIGH * _BUFFERED_RECORDS, abs=1)


def test_it_asks_for_more_once_it_is_half_empty(queue):
    count, signals = put(queue, 256 * 1024)
    taken = 0
    while signals:
        queue.get_nowait()
        taken += 1
    left = (count + 1 - taken) * 256 * 1024
    assert left == pytest.approx(LOW * MAX_QUEUED_BYTES, abs=2 * 256 * 1024)


def test_what_is_cleared_weighs_nothing(queue):
    put(queue, 900_000)
    queue.clear()
    assert queue.qsize() == queue.queued_bytes == 0
    assert put(queue, 900_000)[0] > 0
