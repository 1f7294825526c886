"""What a puller makes of the answers to its commits, and of those that it never got."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    RequestTimedOutError,
)
from aiokafka.structs import OffsetAndMetadata

from pop_stream.puller.consuming import insight_consumer as module
from pop_stream.puller.consuming.insight_consumer import ClaimCommitter, Trail

MEDIA, OTHER = TopicPartition("t.insight.media", 0), TopicPartition("t.insight.media", 1)


class Group:
    """What is committed, and answers of the test's choosing.

    Attributes:
        known: What is committed, by whoever, and counts.
        faults: Of the next commits: an error, and what becomes of the commit: whether it
            counts "now", "never", or only with whatever is written "next".
        meanwhile: Done once, before the fault of a commit is raised.
        lookups: Of the next questions for what is committed.
    """

    def __init__(self):
        self.known = {}
        self.faults = []
        self.meanwhile = None
        self.lookups = []
        self.asked = 0
        self._written = []
        self._news = asyncio.Event()
        self._coordinator = self

    async def position(self, place):
        return self.known[place].offset if place in self.known else 0

    async def until(self, is_so):
        """Wait for what a commit or a question brings about."""
        async with asyncio.timeout(5.0):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def commit(self, offsets):
        self._news.set()
        fault, counts = self.faults.pop(0) if self.faults else (None, "now")
        if counts != "never":
            self._written.append(offsets)
        if counts == "now":
            self.count()
        if fault:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile:
                await meanwhile()
            raise fault

    def count(self):
        """All that is written counts, in order."""
        for offsets in self._written:
            self.known |= {tp: OffsetAndMetadata(*told) for tp, told in offsets.items()}
        self._written.clear()

    async def fetch_committed_offsets(self, partitions):
        self.asked += 1
        self._news.set()
        if self.lookups:
            raise self.lookups.pop(0)
        return {tp: self.known[tp] for tp in partitions if tp in self.known}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.0)


@pytest.fixture
def group():
    return Group()


@asynccontextmanager
async def member(group, *places):
    """One that has just been given these partitions."""
    one = ClaimCommitter(group)
    beginning = asyncio.create_task(one.begin())
    try:
        one.moved(places)
        yield one
    finally:
        beginning.cancel()


async def begun(one):
    async with asyncio.timeout(5.0):
        await one._has_begun.wait()


async def test_a_commit_without_an_answer_is_asked_for_again(group):
    async with member(group, MEDIA) as mine:
        await begun(mine)
        group.faults = [(one, "never") for one in (TimeoutError(), RequestTimedOutError())]
        assert await mine.commit({MEDIA: 7}) == {MEDIA}
        assert group.known[MEDIA].offset == 7


MOVED = pytest.mark.parametrize("moved", [CommitFailedError(), IllegalStateError()])


@MOVED
@pytest.mark.parametrize("commits", [0, 1, 3])
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("counts", ["now", "never"])
async def test_who_lost_a_partition_knows_whether_its_commit_was_written_before(
    group, moved, others, commits, counts
):
    async def go_on():
        for number in range(others):
            async with member(group, MEDIA) as other:
                await begun(other)
                for ahead in range(commits):
                    assert await other.commit({MEDIA: 8 + number + ahead})
        group.faults = [(moved, "never")]

    async with member(group, MEDIA) as earlier:
        assert await earlier.commit({MEDIA: 3})
    async with member(group, MEDIA) as mine:
        assert await mine.commit({MEDIA: 5})
        group.faults, group.meanwhile = [(TimeoutError(), counts)], go_on
        assert await mine.commit({MEDIA: 7}) == ({MEDIA} if counts == "now" else set())


@pytest.mark.parametrize("counts_first", [True, False])
async def test_a_commit_that_counts_late_is_told_by_where_the_next_owner_began(
    group, counts_first
):
    async with member(group, MEDIA) as mine, member(group) as other:
        await begun(mine)

        async def lose():
            group.faults = [(CommitFailedError(), "never")]

        group.faults, group.meanwhile = [(TimeoutError(), "next")], lose
        committing = asyncio.create_task(mine.commit({MEDIA: 7}))
        await group.until(lambda: group.asked == 4)  # it is told what was before
        assert not committing.done()
        if counts_first:
            group.count()
        other.moved([MEDIA])
        await begun(other)
        assert group.known[MEDIA].offset == (7 if counts_first else 0)
        assert await committing == ({MEDIA} if counts_first else set())


async def test_partitions_whose_next_owners_began_before_and_after_are_told_apart(group):
    async with (
        member(group, MEDIA, OTHER) as mine,
        member(group) as early,
        member(group) as late,
    ):
        await begun(mine)

        async def lose():
            group.faults = [(CommitFailedError(), "never")]

        group.faults, group.meanwhile = [(TimeoutError(), "next")], lose
        committing = asyncio.create_task(mine.commit({MEDIA: 7, OTHER: 4}))
        await group.until(lambda: group.asked == 4)
        early.moved([MEDIA])
        await begun(early)
        late.moved([OTHER])
        await begun(late)
        assert await committing == {OTHER}


async def test_who_gets_its_partition_back_knows_whether_it_will_read_again(group):
    async with member(group, MEDIA) as mine:
        await begun(mine)

        async def rebalance():
            mine.moved([MEDIA])

        group.faults, group.meanwhile = [(TimeoutError(), "next")], rebalance
        assert await mine.commit({MEDIA: 7}) == set()
        assert group.known[MEDIA].offset == 0
        assert await mine.commit({MEDIA: 7}) == {MEDIA}


async def test_where_nobody_comes_after_it_is_believed_what_counts_in_the_end(
    group, monkeypatch
):
    monkeypatch.setattr(module, "_HEIR_S", 0.0)
    async with member(group, MEDIA) as mine:
        await begun(mine)
        group.faults = [(TimeoutError(), "now"), (CommitFailedError(), "never")]
        assert await mine.commit({MEDIA: 7}) == {MEDIA}
        group.faults = [(TimeoutError(), "never"), (CommitFailedError(), "never")]
        assert await mine.commit({MEDIA: 8}) == set()


async def test_after_a_rebalance_nothing_is_committed_that_was_claimed_before_it(group):
    async with member(group, MEDIA) as mine:
        assert await mine.commit({MEDIA: 5})
        commit = group.commit

        async def rebalance(offsets):
            mine.moved([MEDIA])
            group.commit = commit
            raise TimeoutError

        group.commit = rebalance
        assert not await mine.commit({MEDIA: 7})
        assert group.known[MEDIA].offset == 5


@pytest.mark.parametrize("counts", ["now", "never"])
async def test_one_partition_tells_for_another_whose_owner_leaves_no_trail(group, counts):
    async with member(group, MEDIA, OTHER) as mine, member(group) as other:
        await begun(mine)

        async def lose():
            other.moved([OTHER])
            await begun(other)
            # Of one that forgot all before it, as a program of others might.
            group.known[MEDIA] = OffsetAndMetadata(9, "")
            group.faults = [(CommitFailedError(), "never")]

        group.faults, group.meanwhile = [(TimeoutError(), counts)], lose
        written = await mine.commit({MEDIA: 7, OTHER: 4})
        assert written == ({MEDIA, OTHER} if counts == "now" else set())


async def test_what_is_committed_is_asked_for_once_an_assignment_and_until_it_is_known(group):
    group.lookups = [GroupCoordinatorNotAvailableError(), TimeoutError()]
    async with member(group, MEDIA) as mine:
        for offset in (5, 6, 7):
            assert await mine.commit({MEDIA: offset})
        assert group.asked == 3
        mine.moved([MEDIA])
        assert await mine.commit({MEDIA: 8})
        assert group.asked == 4


async def test_where_it_begins_is_what_it_read_first_though_it_has_read_on(group):
    group.known[MEDIA] = OffsetAndMetadata(9, "")
    async with member(group, MEDIA) as mine:
        mine.note_read(MEDIA, 5)
        mine.note_read(MEDIA, 7)
        await begun(mine)
        assert group.known[MEDIA].offset == 5


async def test_who_is_refused_at_the_beginning_begins_with_its_next_assignment(group):
    group.faults = [(CommitFailedError(), "never")]
    async with member(group, MEDIA) as mine:
        await group.until(lambda: not group.faults)
        mine.moved([MEDIA])
        await begun(mine)
        assert await mine.commit({MEDIA: 1}) == {MEDIA}


def test_a_trail_is_read_as_it_was_written_and_stays_short():
    trail = Trail("m0")
    for number in range(1, 100):
        trail = trail.taken_over(f"m{number}", 10 * number)
    again = Trail.read(trail.written())
    assert again.written() == trail.written()
    assert len(trail.written()) < 300
    assert again.holds("m99", 995, committed=995)
    assert again.holds("m98", 990, committed=995)
    assert not again.holds("m98", 991, committed=995)
    assert again.holds("m1", 1, committed=995) is None


@pytest.mark.parametrize("foreign", ["", "someone", "a b c", "a @ @x x@", "a b@-1"])
def test_metadata_of_others_tells_nothing(foreign):
    assert not Trail.read(foreign).holds("me", 1, committed=5)
