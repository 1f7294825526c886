"""Summaries as the database has them: those read, and those written lately, kept in memory."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pop_stream.core.lifecycle.summary import Summary

REMEMBERED: Final = 20_000
"""Summaries kept at most; an estimated 25 MB."""

_MOST_OPERATIONS: Final = 8
_MOST_BYTES: Final = 4_096
"""Of results; what is larger is read again."""


class Known(msgspec.Struct, frozen=True, gc=False):
    """A summary as the database has it.

    Attributes:
        percent: As stored; valid also where the operations were not read.
        is_whole: Whether its operations were read.
    """

    summary: Summary | None = None
    version: int = 0
    percent: float = 0.0
    is_whole: bool = True


class RecentSummaries:
    """What this process wrote last of agendas that go on, so that it need not be read again.

    It may be outdated: every write is guarded by the version it is made upon.

    Args:
        size: Summaries that are kept at most.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._known: OrderedDict[str, Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, agenda_id: str) -> Known | None:
        """What was written last; None if that is not known."""
        return self._known.get(agenda_id)

    def keep(self, written: Iterable[Known]) -> None:
        """These were written, and the transaction that did is committed."""
        known = self._known
        for one in written:
            if one.summary is None:
                continue
            agenda_id = one.summary.agenda_id
            known.pop(agenda_id, None)  # to its end: what was written last is dropped last
            if _goes_on(one.summary) and _is_small(one.summary):
                # No event changes the body, and a write without one leaves it.
                known[agenda_id] = (
                    replace(one, summary=replace(one.summary, body=b""))
                    if one.summary.body
                    else one
                )
        while len(known) > self._size:
            known.popitem(last=False)

    def forget(self) -> None:
        """Nothing that was written is certain any more."""
        self._known.clear()


def _goes_on(summary: Summary) -> bool:
    return not summary.state.is_terminal


def _is_small(summary: Summary) -> bool:
    if len(summary.operation_names) > _MOST_OPERATIONS or summary.appended or summary.history:
        return False
    operations = summary.operations.values()
    results = sum(0 if one.result is UNSET else len(one.result) for one in operations)
    return len(operations) <= _MOST_OPERATIONS and results <= _MOST_BYTES
