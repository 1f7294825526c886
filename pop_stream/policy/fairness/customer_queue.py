"""One customer's own ready agendas, and their order among themselves.

Priority first, then agendas that were started before (so that what was begun gets done),
then the customer's fairness keys in turn by cost, then rank, then age. An entry is one
integer that holds all of it but the key, smallest first.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

REF_BITS: Final = 48
"""The low bits of an entry are its place in the backlog, which orders by age."""

RANK_BITS: Final = 16
"""Above the place; ranks go from 0, first, to 65535."""

_REF_MASK: Final = (1 << REF_BITS) - 1
_CLASS_SHIFT: Final = REF_BITS + RANK_BITS
_WITHIN_PRIORITY: Final = (1 << (_CLASS_SHIFT + 1)) - 1


def entry_of(*, priority: int, resumed: bool, rank: int, ref: int) -> int:
    """The entry of an agenda.

    Args:
        priority: 1, first, to 9.
        resumed: Whether it was started before.
        rank: 0, first, to 65535.
        ref: Its place in the backlog.
    """
    return ((priority << 1 | (not resumed)) << RANK_BITS | rank) << REF_BITS | ref


def ref_in(entry: int) -> int:
    """The place in the backlog of an entry's agenda."""
    return entry & _REF_MASK


def class_of(entry: int) -> int:
    """Priority, and whether an agenda was started before: what comes before all else."""
    return entry >> _CLASS_SHIFT


def priority_of(entry: int) -> int:
    """The priority of an entry's agenda."""
    return entry >> (_CLASS_SHIFT + 1)


def within_priority(entry: int) -> int:
    """What orders entries of one priority: started before or not, rank, place."""
    return entry & _WITHIN_PRIORITY


def with_priority(entry: int, priority: int) -> int:
    """The entry that an agenda of another priority would have, all else being equal."""
    return priority << (_CLASS_SHIFT + 1) | within_priority(entry)


class _KeyQueue:
    """Agendas of one class and fairness key; its first entry always waits."""

    __slots__ = ("entries", "withdrawn")

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.withdrawn: set[int] = set()

    def prune(self) -> None:
        while self.entries and self.entries[0] in self.withdrawn:
            self.withdrawn.remove(heappop(self.entries))


class _PriorityClass:
    """Agendas of one priority, started before or not, in lanes by fairness key."""

    __slots__ = ("lanes", "queued", "turns")

    def __init__(self) -> None:
        self.lanes: dict[str, _KeyQueue] = {}
        self.turns: list[tuple[float, str]] = []
        self.queued: set[str] = set()


class CustomerQueue:
    """All waiting agendas of one customer in one insight.

    Fairness keys take turns by start tag, like customers, all with the same weight. A key's
    tag is one for all its classes; a turn with an older tag is corrected when it comes up,
    which is sound because tags only grow.
    """

    __slots__ = ("_classes", "_moved", "ready", "tags", "virtual_time")

    def __init__(self) -> None:
        self.ready = 0
        self.virtual_time = 0.0
        self.tags: dict[str, float] = {}
        self._classes: dict[int, _PriorityClass] = {}
        self._moved: set[str] = set()

    def push(self, entry: int, key: str = "") -> None:
        """Add a waiting agenda under a fairness key."""
        lane = self._lane(class_of(entry), key)
        if entry in lane.withdrawn:
            lane.withdrawn.remove(entry)
        else:
            heappush(lane.entries, entry)
        self.ready += 1

    def fill(self, entries: Mapping[str, list[int]]) -> None:
        """Add a whole backlog at once, by key; only to an empty queue."""
        for key, some in entries.items():
            for entry in some:
                self._lane(class_of(entry), key, is_back=True).entries.append(entry)
            self.ready += len(some)
        for queue in self._classes.values():
            for lane in queue.lanes.values():
                heapify(lane.entries)

    def heads(self) -> Iterator[tuple[int, int]]:
        """Priority and next entry of every class that has one."""
        for number, queue in self._classes.items():
            yield number >> 1, queue.lanes[self._turn(queue)].entries[0]

    def classes(self) -> Iterator[tuple[int, int]]:
        """Next entry of every class that has one, and how many the class has."""
        for queue in self._classes.values():
            lanes = queue.lanes.values()
            waiting = sum(len(lane.entries) - len(lane.withdrawn) for lane in lanes)
            yield queue.lanes[self._turn(queue)].entries[0], waiting

    def head(self) -> int:
        """The next entry by priority; only while `ready`."""
        queue = self._classes[min(self._classes)]
        return queue.lanes[self._turn(queue)].entries[0]

    def pop(self, head: int, cost_of: Callable[[int], float]) -> None:
        """Take out an entry that `head` or `heads` returned.

        Args:
            head: The entry.
            cost_of: Worker-seconds of the agenda with this ref, above 0.
        """
        number = class_of(head)
        queue = self._classes[number]
        key = self._turn(queue)
        lane = queue.lanes[key]
        heappop(lane.entries)
        self.ready -= 1
        self.virtual_time = max(self.virtual_time, self.tags[key])
        if len(queue.lanes) > 1:
            self.tags[key] += cost_of(ref_in(head))
            self._moved.add(key)
        self._tidy(number, key)

    def ahead(self, threshold_of: Callable[[int], float]) -> int:
        """How many entries are below the threshold of their class; O(entries).

        Turns of fairness keys are left aside.

        Args:
            threshold_of: Of a class, by its next entry.
        """
        return sum(
            sum(map(threshold.__gt__, lane.entries))
            - sum(map(threshold.__gt__, lane.withdrawn))
            for queue in self._classes.values()
            for threshold in [threshold_of(queue.lanes[self._turn(queue)].entries[0])]
            for lane in queue.lanes.values()
            if lane.entries[0] < threshold
        )

    def withdraw(self, entry: int, key: str = "") -> None:
        """Take out an agenda that waits, wherever it is."""
        number = class_of(entry)
        self._classes[number].lanes[key].withdrawn.add(entry)
        self.ready -= 1
        self._tidy(number, key)

    @property
    def has_moved(self) -> bool:
        """Whether the tag of a key moved since the last `drain_moved`."""
        return bool(self._moved)

    def drain_moved(self) -> dict[str, float]:
        """Tags of keys that moved since the last call."""
        if not self._moved:
            return {}
        moved, self._moved = self._moved, set()
        return {key: self.tags[key] for key in moved if key in self.tags}

    def forget_idle_keys(self) -> None:
        """Drop idle keys that the queue's virtual time has passed: they rejoin at it."""
        busy = {key for queue in self._classes.values() for key in queue.lanes}
        self.tags = {
            key: tag for key, tag in self.tags.items() if key in busy or tag > self.virtual_time
        }

    def _lane(self, number: int, key: str, *, is_back: bool = False) -> _KeyQueue:
        """The lane of a class and key; a new one starts at the present, unless it `is_back`."""
        queue = self._classes.get(number)
        if queue is None:
            queue = self._classes[number] = _PriorityClass()
        lane = queue.lanes.get(key)
        if lane is None:
            tag = self.tags.get(key)
            if tag is None or not is_back:
                # At the next turn of its class: others may have been served long before it.
                present = self.tags[self._turn(queue)] if queue.lanes else self.virtual_time
                tag = max(tag or 0.0, present)
            lane = queue.lanes[key] = _KeyQueue()
            if tag != self.tags.get(key):
                self.tags[key] = tag
                self._moved.add(key)
            if key not in queue.queued:
                queue.queued.add(key)
                heappush(queue.turns, (tag, key))
        return lane

    def _turn(self, queue: _PriorityClass) -> str:
        """The key whose turn it is."""
        while True:
            tag, key = queue.turns[0]
            if key not in queue.lanes:
                heappop(queue.turns)
                queue.queued.remove(key)
            elif tag != self.tags[key]:
                heapreplace(queue.turns, (self.tags[key], key))
            else:
                return key

    def _tidy(self, number: int, key: str) -> None:
        queue = self._classes[number]
        queue.lanes[key].prune()
        if not queue.lanes[key].entries:
            del queue.lanes[key]
        if not queue.lanes:
            del self._classes[number]
        if not self._classes:
            # Nothing waits: all tags are the past, and need not be kept.
            self.virtual_time = max([self.virtual_time, *self.tags.values()])
            self.tags = {}
