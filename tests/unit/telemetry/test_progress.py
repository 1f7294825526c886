"""Lag and age of a consumer, through batches, rebalances and rereads."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from pop_stream.ports.records import TopicPartition
from pop_stream.telemetry.progress import ConsumerProgress, ConsumerProgressCollector

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Read:
    offset: int
    timestamp: int


class World:
    def __init__(self, group="g"):
        self.assigned, self.ends, self.now = {HERE, THERE}, {}, 100.0
        self.progress = ConsumerProgress(
            group, lambda: self.assigned, self.ends.get, now=lambda: self.now
        )

    def read(self, *offsets, at, partition=HERE):
        self.progress.mark_read({partition: [Read(one, int(at * 1000)) for one in offsets]})

    @property
    def shown(self):
        return self.progress.lag, self.progress.age_s


def test_nothing_is_behind_before_anything_is_read():
    assert World().shown == (0, 0.0)


def test_a_batch_in_hand_is_as_old_as_its_oldest_record_and_ages():
    world = World()
    world.ends[HERE] = 9
    world.read(4, 5, at=90)
    world.read(0, at=95, partition=THERE)
    assert world.shown == (5 + 1, 10.0)
    world.now = 160.0  # whoever handles it hangs
    assert world.shown == (6, 70.0)


def test_what_is_handled_counts_no_more():
    world = World()
    world.ends[HERE] = 6
    world.read(4, 5, at=90)
    world.progress.mark_handled({HERE: 6})
    assert world.shown == (0, 0.0)
    world.ends[HERE] = 7  # the next was written since the last that was handled
    assert world.shown == (1, 10.0)


def test_several_batches_may_be_in_hand():
    world = World()
    world.read(0, 1, at=80)
    world.read(2, 3, at=90)
    world.progress.mark_handled({HERE: 2})
    assert world.shown == (2, 10.0)
    world.progress.mark_handled({HERE: 3})
    assert world.shown == (1, 10.0)


def test_a_partition_that_moved_away_is_its_next_owners():
    world = World()
    world.read(0, at=10)
    world.assigned = set()
    assert world.shown == (0, 0.0)
    world.progress.mark_handled({HERE: 1})
    assert world.shown == (0, 0.0)


def test_what_is_read_again_replaces_what_was_in_hand():
    world = World()
    world.read(5, 6, at=50)
    world.read(5, at=50)
    world.progress.mark_handled({HERE: 6})
    assert world.shown == (0, 0.0)


def test_consumers_of_a_group_are_summed_and_gone_ones_are_not_shown():
    one, two = World("sum"), World("sum")
    one.read(0, 1, at=99)
    two.read(0, at=90)
    registry = CollectorRegistry()
    registry.register(ConsumerProgressCollector())
    labels = {"group": "sum"}
    with one.progress, two.progress:
        assert registry.get_sample_value("pop_consumer_lag", labels) == 3
        assert registry.get_sample_value("pop_consumer_age_seconds", labels) == 10.0
    assert registry.get_sample_value("pop_consumer_lag", labels) is None
