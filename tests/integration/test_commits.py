"""Commits of a group's members on a real broker, whose answers are lost while it rebalances."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError
from aiokafka.protocol.commit import OffsetCommitRequest
from consumer_group_members import WITHIN_S, until_assigned, work_topic
from deadlines import within

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import progress_of
from pop_stream.puller.consuming import insight_consumer as module
from pop_stream.puller.consuming.insight_consumer import ClaimCommitter


@pytest.fixture
async def topic(settings):
    return await work_topic(settings)


class Listener(ConsumerRebalanceListener):
    def __init__(self, committer):
        self._committer = committer

    async def on_partitions_revoked(self, revoked):
        self._committer.end_generation()

    def on_partitions_assigned(self, assigned):
        pass


@asynccontextmanager
async def member(settings, topic):
    """A member of the topic's group, and its committer."""
    async with clients.consumer(settings, client_id="m", group_id=f"{topic}.g") as one:
        committer = ClaimCommitter(one, progress_of(one, "g"))
        one.subscribe([topic], listener=Listener(committer))
        yield one, committer


def lose_answers(consumer, *, are_written):
    """From now on no commit is answered; the first is written, if at all. When that is done."""
    coordinator, done = consumer._coordinator, asyncio.Event()
    send = coordinator._send_req

    async def cut(request):
        if isinstance(request, OffsetCommitRequest) and not done.is_set():
            if are_written:
                await send(request)
            done.set()
            raise KafkaConnectionError
        return await send(request)

    coordinator._send_req = cut
    return done


@pytest.mark.parametrize("are_written", [True, False])
async def test_a_commit_whose_answer_is_lost_in_a_rebalance_is_unknown_and_sets_nothing_back(
    settings, topic, are_written, monkeypatch
):
    monkeypatch.setattr(module, "_ANSWER_S", WITHIN_S)  # so that it is the client that repeats
    places = [TopicPartition(topic, number) for number in (0, 1)]
    async with member(settings, topic) as (first, mine):
        await until_assigned(first, 2)
        coordinator = first._coordinator
        lost = lose_answers(first, are_written=are_written)
        # The client tries again after this; by then the other one is to be a member.
        coordinator._retry_backoff_ms = 5_000
        committing = asyncio.create_task(mine.commit(dict.fromkeys(places, 7)))
        async with within(WITHIN_S):
            await lost.wait()
            async with member(settings, topic) as (second, others):
                await asyncio.gather(until_assigned(second, 1), until_assigned(first, 1))
                (theirs,), (left,) = second.assignment(), first.assignment()
                assert not await committing
                assert await others.commit({theirs: 9})
                # Nor is anything set back that others committed meanwhile.
                assert await second.committed(theirs) == 9
                assert await first.committed(left) == (7 if are_written else None)


async def test_who_is_no_member_commits_nothing_though_the_group_is_empty(settings, topic):
    place = TopicPartition(topic, 0)
    async with member(settings, topic) as (one, _):
        await until_assigned(one, 2)
        await one._coordinator._maybe_leave_group()
        with pytest.raises(CommitFailedError):
            await one.commit({place: 7})
        await until_assigned(one, 2)
        assert await one.committed(place) is None
