"""What stands for each deduplication key of an insight, and which runs of it ended lately.

What stands for which key is found again in the pages after a restart. Ends are part of the
deltas; beyond `MAX_ENDS` the one that is oldest is forgotten first. How long duplicates have
put off a debounced agenda is in memory only: after a restart it may be put off anew.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from pop_stream.model.events.base import DedupeRule
from pop_stream.policy.delta import KeyEnd

MAX_ENDS: Final = 100_000
"""Most ends of an insight that are remembered: about 300 bytes each."""

_FORGOTTEN: Final = KeyEnd("", 0.0, 0.0)


class DedupeKeys:
    """What stands for each deduplication key of one insight, and what ended lately."""

    def __init__(self) -> None:
        self._refs: dict[str, dict[int, None]] = {}
        self._ends: OrderedDict[str, KeyEnd] = OrderedDict()
        self._changed: dict[str, KeyEnd] = {}
        self._since: dict[int, float] = {}

    # ---- agendas that are here ----

    def add(self, key: str, ref: int) -> None:
        """The agenda in the place stands for the key, as the newest."""
        self._refs.setdefault(key, {})[ref] = None

    def remove(self, key: str, ref: int) -> None:
        """It has ended; a second call does nothing."""
        refs = self._refs.get(key, {})
        refs.pop(ref, None)
        self._since.pop(ref, None)
        if not refs:
            self._refs.pop(key, None)

    def standing(self, key: str) -> Iterator[int]:
        """The places of agendas that stand for the key, the newest first."""
        yield from reversed([*self._refs.get(key, ())])

    def put_off(self, ref: int, since: float) -> None:
        """A debounced agenda in the place stands for others, the first of which came then."""
        self._since[ref] = since

    def put_off_since(self, ref: int) -> float | None:
        """When the first of these came; None if it stands for no others."""
        return self._since.get(ref)

    # ---- ends ----

    def end(self, rule: DedupeRule, agenda_id: str, at: float) -> None:
        """An agenda has run and ended; remembered for `within_s` of its rule."""
        if not rule.within_s:
            return
        self._note(rule.key, KeyEnd(agenda_id, at, at + rule.within_s))
        for key, oldest in [*self._oldest(2)]:
            if oldest.until <= at or len(self._ends) > MAX_ENDS:
                self._note(key, _FORGOTTEN)

    def last_end(self, key: str) -> KeyEnd | None:
        """The end of the key's last run, if it is remembered."""
        return self._ends.get(key)

    def drain_changed(self) -> dict[str, KeyEnd]:
        """Ends that changed since the last call, in the order in which they did."""
        changed, self._changed = self._changed, {}
        return changed

    def all_ends(self) -> dict[str, KeyEnd]:
        """All ends that are remembered, the oldest first."""
        return dict(self._ends)

    def apply(self, known: Mapping[str, KeyEnd]) -> None:
        """Apply one delta's ends, oldest delta first."""
        for key, end in known.items():
            self._ends.pop(key, None)
            if end.until:
                self._ends[key] = end

    def _oldest(self, most: int) -> Iterator[tuple[str, KeyEnd]]:
        found = iter(self._ends.items())
        for _ in range(min(most, len(self._ends))):
            yield next(found)

    def _note(self, key: str, end: KeyEnd) -> None:
        self._changed.pop(key, None)
        self._changed[key] = end
        self.apply({key: end})
