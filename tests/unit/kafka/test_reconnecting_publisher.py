"""A producer that is started late, kept while the broker is away, and replaced if broken."""

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
)
from fakes import MemoryPublisher

from pop_stream.kafka.publisher import ReconnectingPublisher
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Record

RECORD = Record("topic", b"key", b"value")


class Producer(MemoryPublisher):
    def __init__(self, *, starts=True):
        super().__init__()
        self.starts = starts
        self.stopped = False

    async def __aenter__(self):
        if not self.starts:
            raise KafkaConnectionError
        return self

    async def __aexit__(self, *_):
        self.stopped = True


def caused_by(cause):
    error = UnavailableError(repr(cause))
    error.__cause__ = cause
    return error


@pytest.fixture
def made():
    return []


def steady(made, *producers):
    left = iter(producers)

    def make():
        made.append(next(left))
        return made[-1]

    return ReconnectingPublisher(make)


async def test_producer_is_made_once_and_when_needed(made):
    publisher = steady(made, Producer())
    assert made == []
    await publisher.publish([RECORD])
    await publisher.publish([RECORD])
    assert await publisher.partitions("topic") == 4
    assert [len(one.records) for one in made] == [2]
    await publisher.close()
    assert made[0].stopped


async def test_producer_that_does_not_start_is_stopped_and_made_anew(made):
    publisher = steady(made, Producer(starts=False), Producer())
    with pytest.raises(UnavailableError):
        await publisher.publish([RECORD])
    await publisher.publish([RECORD])
    assert [one.stopped for one in made] == [True, False]


async def test_producer_is_kept_while_the_broker_is_away(made):
    publisher = steady(made, Producer())
    await publisher.publish([])
    made[0].failures = [caused_by(NotLeaderForPartitionError()), UnavailableError("late")]
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await publisher.publish([RECORD])
    await publisher.publish([RECORD])
    assert len(made) == 1


async def test_producer_whose_sequence_is_broken_is_replaced(made):
    publisher = steady(made, Producer(), Producer())
    await publisher.publish([])
    made[0].failures = [caused_by(OutOfOrderSequenceNumber())]
    with pytest.raises(UnavailableError):
        await publisher.publish([RECORD])
    await publisher.publish([RECORD])
    assert [(one.stopped, len(one.records)) for one in made] == [(True, 0), (False, 1)]


async def test_closing_what_was_never_used_is_harmless(made):
    await steady(made).close()
