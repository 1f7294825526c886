"""What a puller makes of the answers to its commits, and of those that it never got."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    RequestTimedOutError,
)
from aiokafka.structs import OffsetAndMetadata

from pop_stream.pullers import commits as module
from pop_stream.pullers.commits import ClaimCommits, Trail

MEDIA, OTHER = TopicPartition("t.insight.media", 0), TopicPartition("t.insight.media", 1)


class Group:
    """What is committed, and answers of the test's choosing.

    Attributes:
        known: What is committed, by whoever.
        faults: Of the next commits; a pair of a fault and True writes all the same.
        meanwhile: Done once, before the fault of a commit is raised.
        lookups: Of the next questions for what is committed.
    """

    def __init__(self):
        self.known = {}
        self.faults = []
        self.meanwhile = None
        self.lookups = []
        self.asked = 0
        self._coordinator = self

    async def commit(self, offsets):
        fault, is_written = self.faults.pop(0) if self.faults else (None, True)
        if is_written:
            self.known |= {tp: OffsetAndMetadata(*told) for tp, told in offsets.items()}
        if fault:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile:
                await meanwhile()
            raise fault

    async def fetch_committed_offsets(self, partitions):
        self.asked += 1
        if self.lookups:
            raise self.lookups.pop(0)
        return {tp: self.known[tp] for tp in partitions if tp in self.known}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.0)


@pytest.fixture
def group():
    return Group()


async def test_a_commit_without_an_answer_is_asked_for_again(group):
    group.faults = [(one, False) for one in (TimeoutError(), RequestTimedOutError())]
    assert await ClaimCommits(group).commit({MEDIA: 7})
    assert group.known[MEDIA].offset == 7


MOVED = pytest.mark.parametrize("moved", [CommitFailedError(), IllegalStateError()])


@MOVED
@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("is_written", [True, False])
async def test_who_lost_a_partition_knows_whether_its_commit_was_written_before(
    group, moved, others, is_written
):
    async def go_on():
        for number in range(others):
            assert await ClaimCommits(group).commit({MEDIA: 8 + number})
        group.faults = [(moved, False)]

    assert await ClaimCommits(group).commit({MEDIA: 3})
    mine = ClaimCommits(group)
    assert await mine.commit({MEDIA: 5})
    group.faults, group.meanwhile = [(TimeoutError(), is_written)], go_on
    assert await mine.commit({MEDIA: 7}) is is_written


async def test_after_a_rebalance_nothing_is_committed_that_was_claimed_before_it(group):
    mine = ClaimCommits(group)
    assert await mine.commit({MEDIA: 5})

    async def rebalance(offsets):
        mine.moved()
        raise TimeoutError

    group.commit = rebalance
    assert not await mine.commit({MEDIA: 7})
    assert group.known[MEDIA].offset == 5


async def test_one_partition_tells_for_the_others_of_its_commit(group):
    mine = ClaimCommits(group)
    assert await mine.commit({MEDIA: 7, OTHER: 4})
    # Of one that forgot all before it, as a program of others might.
    group.known[MEDIA] = OffsetAndMetadata(9, "")
    group.faults = [(CommitFailedError(), False)]
    assert await mine.commit({MEDIA: 7, OTHER: 4})


async def test_what_is_committed_is_asked_for_once_an_assignment_and_until_it_is_known(group):
    group.lookups = [GroupCoordinatorNotAvailableError(), TimeoutError()]
    mine = ClaimCommits(group)
    for offset in (5, 6, 7):
        assert await mine.commit({MEDIA: offset})
    assert group.asked == 3
    mine.moved()
    assert await mine.commit({MEDIA: 8})
    assert group.asked == 4


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
    assert not again.holds("m1", 1, committed=995)


@pytest.mark.parametrize("foreign", ["", "someone", "a b c", "a @ @x x@", "a b@-1"])
def test_metadata_of_others_tells_nothing(foreign):
    assert not Trail.read(foreign).holds("me", 1, committed=5)
