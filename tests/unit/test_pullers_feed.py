"""What a puller makes of the answers to its commits."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    RequestTimedOutError,
)
from aiokafka.structs import OffsetAndMetadata

from pop_stream.pullers import feed

MEDIA, OTHER = TopicPartition("t.insight.media", 0), TopicPartition("t.insight.media", 1)


class Group:
    """Answers commits with what the test says, and in the end takes them.

    Attributes:
        known: What is committed, by whoever.
        lookups: Faults of questions for that.
    """

    def __init__(self, *answers):
        self.answers = [*answers]
        self.lookups = []
        self.committed = []
        self.known = {}
        self._coordinator = self

    async def commit(self, offsets):
        if self.answers:
            raise self.answers.pop(0)
        self.committed.append(offsets)

    async def fetch_committed_offsets(self, partitions):
        if self.lookups:
            raise self.lookups.pop(0)
        return {tp: OffsetAndMetadata(*self.known[tp]) for tp in partitions if tp in self.known}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(feed, "_RETRY_S", 0.0)


async def test_a_commit_without_an_answer_is_asked_for_again():
    group = Group(TimeoutError(), RequestTimedOutError(), TimeoutError())
    assert await feed._commit(group, {MEDIA: 7}, "me")
    assert group.committed == [{MEDIA: (7, "me")}]


MOVED = pytest.mark.parametrize("moved", [CommitFailedError(), IllegalStateError()])


@MOVED
@pytest.mark.parametrize(
    "known", [{}, {MEDIA: (3, "me")}, {MEDIA: (7, "other")}, {MEDIA: (9, "other")}]
)
async def test_what_is_not_written_and_has_moved_is_for_others_to_start(moved, known):
    group = Group(TimeoutError(), moved)
    group.known = known
    assert not await feed._commit(group, {MEDIA: 7}, "me")
    assert group.committed == []


@MOVED
async def test_what_was_written_before_it_moved_is_started_by_nobody_else(moved):
    group = Group(moved)
    group.known = {MEDIA: (7, "me")}
    group.lookups = [GroupCoordinatorNotAvailableError(), TimeoutError()]
    assert await feed._commit(group, {MEDIA: 7}, "me")


async def test_of_a_commit_that_was_written_one_partition_tells_for_the_others():
    group = Group(CommitFailedError())
    group.known = {MEDIA: (9, "other"), OTHER: (4, "me")}
    assert await feed._commit(group, {MEDIA: 7, OTHER: 4}, "me")
