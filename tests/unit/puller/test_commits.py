"""What a puller makes of the answers to its commits, and of those that it never got."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, RequestTimedOutError

from pop_stream.puller.consuming import insight_consumer as module
from pop_stream.puller.consuming.insight_consumer import ClaimCommitter
from pop_stream.telemetry.progress import ConsumerProgress

MEDIA = TopicPartition("t.insight.media", 0)


class Group:
    """Stands in for a consumer; answers of the test's choosing.

    Attributes:
        committed: What counts.
        answers: To the next commits: an error, or something to call before one is raised.
    """

    def __init__(self):
        self.committed = {}
        self.answers = []
        self.asked = 0

    async def commit(self, offsets):
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer = answer()
        if answer is not None:
            raise answer
        self.committed |= offsets


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.0)


@pytest.fixture
def group():
    return Group()


@pytest.fixture
def committer(group):
    return ClaimCommitter(group, ConsumerProgress("g", set, lambda _: None))


async def test_a_commit_without_an_answer_is_tried_again_until_there_is_one(group, committer):
    group.answers = [TimeoutError(), RequestTimedOutError()]
    assert await committer.commit({MEDIA: 7})
    assert (group.committed, group.asked) == ({MEDIA: 7}, 3)


@pytest.mark.parametrize("refusal", [CommitFailedError(), IllegalStateError()])
async def test_a_refused_commit_is_not_tried_again(group, committer, refusal):
    group.answers = [refusal]
    assert not await committer.commit({MEDIA: 7})
    assert (group.committed, group.asked) == ({}, 1)


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_commit_that_is_unanswered_when_partitions_move_is_unknown(
    group, committer, is_written
):
    def lose_answer():
        if is_written:
            group.committed[MEDIA] = 7
        committer.end_generation()
        return TimeoutError()

    group.answers = [lose_answer]
    assert not await committer.commit({MEDIA: 7})
    assert group.asked == 1, "as another member, it could set back what others committed"
    assert await committer.commit({MEDIA: 9})
