"""What a puller makes of the answers to its commits."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, RequestTimedOutError

from pop_stream.pullers import feed

MEDIA = TopicPartition("t.insight.media", 0)


class Group:
    """Answers commits with what the test says, and in the end takes them."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.committed = []

    async def commit(self, offsets):
        if self.answers:
            raise self.answers.pop(0)
        self.committed.append(offsets)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(feed, "_RETRY_S", 0.0)


async def test_a_commit_without_an_answer_is_asked_for_again():
    group = Group(TimeoutError(), RequestTimedOutError(), TimeoutError())
    assert await feed._commit(group, {MEDIA: 7})
    assert group.committed == [{MEDIA: 7}]


@pytest.mark.parametrize("moved", [CommitFailedError(), IllegalStateError()])
async def test_what_may_be_written_and_has_moved_meanwhile_is_for_others_to_start(moved):
    group = Group(TimeoutError(), moved)
    assert not await feed._commit(group, {MEDIA: 7})
    assert group.committed == []
