"""One customer's own ready agendas, and their order among themselves.

Its fairness keys take turns by what they were given, as customers do among themselves. Within
a key go first by priority, then agendas that were started before (so that what was begun gets
done), then by rank, then by age. An entry is one integer that holds all of it but the key,
smallest first. So no key gets more than its part by calling its agendas urgent, or by retries.

With strict priorities across customers it is the other way round: agendas of a priority come
before those of the next, and keys take turns within each.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from pop_stream.policy.fairness.turn_order import Account, KeyedHeap, Reservation

REF_BITS: Final = 48
"""The low bits of an entry are its place in the backlog, which orders by age."""

RANK_BITS: Final = 32
"""Above the place; ranks go from 0, first, to 4294967295."""

_REF_MASK: Final = (1 << REF_BITS) - 1
_CLASS_SHIFT: Final = REF_BITS + RANK_BITS
_WITHIN_PRIORITY: Final = (1 << (_CLASS_SHIFT + 1)) - 1
_EQUAL: Final = 1.0
"""All keys of a customer weigh the same."""


def entry_of(*, priority: int, resumed: bool, rank: int, ref: int) -> int:
    """The entry of an agenda.

    Args:
        priority: 1, first, to 9.
        resumed: Whether it was started before.
        rank: 0, first, to 4294967295.
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
    """Agendas of one group and fairness key; its first entry always waits."""

    __slots__ = ("entries", "withdrawn")

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.withdrawn: set[int] = set()

    def prune(self) -> None:
        while self.entries and self.entries[0] in self.withdrawn:
            self.withdrawn.remove(heappop(self.entries))


class _Group:
    """Agendas that go in turns of their keys: all of a customer, or those of one class.

    Turns are kept up to date only while there is more than one lane.
    """

    __slots__ = ("lanes", "turns")

    def __init__(self) -> None:
        self.lanes: dict[str, _KeyQueue] = {}
        self.turns = KeyedHeap()


class _Key:
    """A fairness key that is in use, or was given more than others.

    Attributes:
        is_kept: Whether what it was given was returned for `restore`.
        lanes: In how many groups it has agendas that wait.
        out: Of its agendas, how many are out.
    """

    __slots__ = ("account", "is_kept", "lanes", "out")

    def __init__(self, account: Account, *, is_kept: bool = False) -> None:
        self.account = account
        self.is_kept = is_kept
        self.lanes = 0
        self.out = 0

    @property
    def is_in_use(self) -> bool:
        return bool(self.lanes or self.out)


class CustomerQueue:
    """All waiting agendas of one customer in one insight.

    What keys are given is counted while there is more than one. A key that is in use no more
    is remembered until the present has passed what it was given.

    Args:
        by_class: Whether priority, and being started before, come before keys.

    Attributes:
        ready: Agendas that wait.
        present: At which keys join where no other waits, in worker-seconds.
    """

    __slots__ = (
        "_ahead",
        "_by_class",
        "_groups",
        "_keys",
        "_moved",
        "_out",
        "present",
        "ready",
    )

    def __init__(self, *, by_class: bool = False) -> None:
        self.ready = 0
        self.present = 0.0
        self._by_class = by_class
        self._out = 0
        self._keys: dict[str, _Key] = {}
        self._ahead = KeyedHeap()
        self._groups: dict[int, _Group] = {}
        self._moved: set[str] = set()

    def push(self, entry: int, key: str = "") -> None:
        """Add a waiting agenda under a fairness key."""
        lane = self._lane(self._group(entry), key)
        if entry in lane.withdrawn:
            lane.withdrawn.remove(entry)
        else:
            heappush(lane.entries, entry)
        self.ready += 1

    def restore(self, present: float, keys: Mapping[str, tuple[float, int] | None]) -> None:
        """What keys were given before a restart; first, and only to an empty queue."""
        self.present = present
        for name, given in keys.items():
            if given is not None:
                self._keys[name] = _Key(Account(*given), is_kept=True)

    def fill(
        self, entries: Mapping[str, list[int]], out: Mapping[str, list[Reservation]]
    ) -> None:
        """Add all that waits and is out at once, by key; only to an empty queue."""
        for name, reservations in out.items():
            key = self._keys.setdefault(name, _Key(Account(self.present)))
            key.out = len(reservations)
            self._out += key.out
            for one in reservations:
                key.account.charged += one.charged
                key.account.sure += one.sure
        for name, some in entries.items():
            for entry in some:
                self._lane(self._group(entry), name, is_back=True).entries.append(entry)
            self.ready += len(some)
        for group in self._groups.values():
            for lane in group.lanes.values():
                heapify(lane.entries)
        for name in [name for name, key in self._keys.items() if not key.is_in_use]:
            self._retire(name)

    def heads(self) -> Iterator[tuple[int, int]]:
        """Priority and next entry of every group that has one."""
        for group in self._groups.values():
            entry = self._head(group)
            yield priority_of(entry), entry

    def sample(self, most: int) -> list[int]:
        """Up to about `most` waiting entries, spread over all of them; for estimates."""
        lanes = [lane for group in self._groups.values() for lane in group.lanes.values()]
        found: list[int] = []
        for lane in lanes[:most]:
            share = max(1, most * len(lane.entries) // max(1, self.ready))
            step = max(1, len(lane.entries) // share)
            found += [one for one in lane.entries[::step] if one not in lane.withdrawn]
        return found

    def classes(self) -> Iterator[tuple[int, int]]:
        """Next entry of every group that has one, and how many the group has."""
        for group in self._groups.values():
            lanes = group.lanes.values()
            waiting = sum(len(lane.entries) - len(lane.withdrawn) for lane in lanes)
            yield self._head(group), waiting

    def head(self) -> int:
        """The next entry; only while `ready`."""
        return self._head(self._groups[min(self._groups)])

    def pop(self, head: int, reservation: Reservation) -> None:
        """Take out an entry that `head` or `heads` returned; its agenda goes out.

        Args:
            head: The entry.
            reservation: What the agenda counts as.
        """
        number = self._group(head)
        name = self._turn(self._groups[number])
        lane = self._groups[number].lanes[name]
        heappop(lane.entries)
        self.ready -= 1
        self._reserve(name, reservation)
        self._tidy(number, name)

    def pop_out_of_turn(self, entry: int, key: str, reservation: Reservation) -> None:
        """Take out an agenda, wherever it is, that is found to be out."""
        number = self._group(entry)
        self._groups[number].lanes[key].withdrawn.add(entry)
        self.ready -= 1
        self._reserve(key, reservation)
        self._tidy(number, key)

    def ahead_of_present(self, entry: int, key: str) -> float:
        """Worker-seconds by which the key of a waiting entry is ahead of where others join.

        Without what was declared beyond the usual; 0 if no other key waits in its group.
        """
        group = self._groups[self._group(entry)]
        first = group.turns.first() if len(group.lanes) > 1 else None
        if first is None:
            return 0.0
        present = self._keys[first[1]].account.present(self.present, _EQUAL)
        return self._keys[key].account.sure_position(_EQUAL) - present

    def replace(self, key: str, before: Reservation, after: Reservation) -> None:
        """An agenda that is out counts as more than before."""
        account = self._keys[key].account
        last = account.last
        account.replace(before, after)
        if self._are_counted:
            self._moved.add(key)
        else:
            account.last = last
        self._put(key)

    def settle(self, key: str, reservation: Reservation, delivered_s: float) -> None:
        """An agenda that was out has ended after so many worker-seconds."""
        known = self._keys[key]
        known.out -= 1
        self._out -= 1
        if self._are_counted:
            known.account.settle(reservation, delivered_s, _EQUAL)
            self._moved.add(key)
        else:
            known.account.settle(reservation, 0.0, _EQUAL)
        self._put(key)
        if not known.is_in_use:
            self._retire(key)

    def ahead(self, threshold_of: Callable[[int], float]) -> int:
        """How many entries are below the threshold of their group; O(entries).

        Turns of fairness keys are left aside.

        Args:
            threshold_of: Of a group, by its next entry.
        """
        return sum(
            sum(map(threshold.__gt__, lane.entries))
            - sum(map(threshold.__gt__, lane.withdrawn))
            for group in self._groups.values()
            for threshold in [threshold_of(self._head(group))]
            for lane in group.lanes.values()
            if lane.entries[0] < threshold
        )

    def withdraw(self, entry: int, key: str = "") -> None:
        """Take out an agenda that waits, wherever it is."""
        number = self._group(entry)
        self._groups[number].lanes[key].withdrawn.add(entry)
        self.ready -= 1
        self._tidy(number, key)
        if not self._keys[key].is_in_use:
            self._retire(key)

    @property
    def has_moved(self) -> bool:
        """Whether what a key was given moved since the last `drain_moved`."""
        return bool(self._moved)

    def drain_moved(self) -> dict[str, tuple[float, int] | None]:
        """What moved since the last call, for `restore`; None of a key that is forgotten."""
        if not self._moved:
            return {}
        moved, self._moved = self._moved, set()
        return {name: self._given(name) for name in moved}

    def keys(self) -> dict[str, tuple[float, int] | None]:
        """By key, what was delivered to it, and the last agenda of it, for `restore`."""
        return {name: one for name in self._keys if (one := self._given(name))}

    def _given(self, name: str) -> tuple[float, int] | None:
        key = self._keys.get(name)
        if key is None or not (key.account.tag or key.account.last or self._are_counted):
            return None
        key.is_kept = True
        return key.account.tag, key.account.last

    @property
    def _are_counted(self) -> bool:
        return len(self._keys) > 1

    def _group(self, entry: int) -> int:
        return class_of(entry) if self._by_class else 0

    def _head(self, group: _Group) -> int:
        return group.lanes[self._turn(group)].entries[0]

    def _turn(self, group: _Group) -> str:
        """The key whose turn it is; the group has one."""
        if len(group.lanes) == 1:
            return next(iter(group.lanes))
        first = group.turns.first()
        return "" if first is None else first[1]

    def _lane(self, number: int, name: str, *, is_back: bool = False) -> _KeyQueue:
        """The lane of a group and key; a key joins at the present, unless it `is_back`."""
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = _Group()
        lane = group.lanes.get(name)
        if lane is None:
            if len(group.lanes) == 1:
                alone = next(iter(group.lanes))
                group.turns.put(alone, self._keys[alone].account.position(_EQUAL))
            key = self._keys.get(name)
            if key is None:
                key = self._keys[name] = _Key(Account(self.present))
                # From now on they are counted, or with a present that is not the first one.
                self._moved.update(self._keys if self._are_counted else ())
            self._ahead.drop(name)
            if not is_back:
                self._lift(key, name, group)
            key.lanes += 1
            lane = group.lanes[name] = _KeyQueue()
            group.turns.put(name, key.account.position(_EQUAL))
        return lane

    def _lift(self, key: _Key, name: str, group: _Group) -> None:
        first = group.turns.first()
        present = self.present
        if first is not None:
            present = self._keys[first[1]].account.present(present, _EQUAL)
        before = key.account.tag
        key.account.lift(present, _EQUAL)
        if key.account.tag != before or key.account.tag:
            self._moved.add(name)

    def _reserve(self, name: str, reservation: Reservation) -> None:
        key = self._keys[name]
        key.out += 1
        self._out += 1
        last = key.account.last
        if self._are_counted:
            self._advance_to(key.account.sure_position(_EQUAL))
            last = reservation.sure
            self._moved.add(name)
        key.account.reserve(reservation)
        key.account.last = last
        self._put(name)

    def _advance_to(self, present: float) -> None:
        """Move the present on, and forget who is in use no more and not ahead of it."""
        self.present = max(self.present, present)
        while (first := self._ahead.first()) is not None and first[0] <= self.present:
            self._ahead.drop(first[1])
            if self._keys.pop(first[1]).is_kept:
                self._moved.add(first[1])

    def _put(self, name: str) -> None:
        """Give a key its turn in the groups where it waits."""
        key = self._keys[name]
        if key.lanes:
            for group in self._groups.values():
                if len(group.lanes) > 1 and name in group.lanes:
                    group.turns.put(name, key.account.position(_EQUAL))

    def _retire(self, name: str) -> None:
        """A key is in use no more; with the last one, all that was given is the past."""
        self._ahead.put(name, self._keys[name].account.tag)
        is_idle = not self.ready and not self._out
        tags = (key.account.tag for key in self._keys.values()) if is_idle else ()
        self._advance_to(max(tags, default=self.present))

    def _tidy(self, number: int, name: str) -> None:
        group = self._groups[number]
        lane = group.lanes[name]
        lane.prune()
        if not lane.entries:
            del group.lanes[name]
            group.turns.drop(name)
            self._keys[name].lanes -= 1
        if not group.lanes:
            del self._groups[number]
