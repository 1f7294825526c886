"""Summaries as the database has them: those read, and those written lately, kept in memory."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pop_stream.core.lifecycle.summary import Summary

CACHE_SIZE: Final = 20_000
"""Summaries kept at most; an estimated 25 MB."""

_MAX_OPERATIONS: Final = 8
_MAX_BYTES: Final = 4_096
"""Of results; what is larger is read again."""


class StoredSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary as the database has it.

    Attributes:
        percent: As stored; valid also where the operations were not read.
        is_complete: Whether its operations were read.
    """

    summary: Summary | None = None
    version: int = 0
    percent: float = 0.0
    is_complete: bool = True


class SummaryCache:
    """What this process wrote last of agendas that go on, so that it need not be read again.

    It may be outdated: every write is guarded by the version it is made upon.

    Args:
        size: Summaries that are kept at most.
    """

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._summaries: OrderedDict[str, StoredSummary] = OrderedDict()

    def __len__(self) -> int:
        return len(self._summaries)

    def get(self, agenda_id: str) -> StoredSummary | None:
        """What was written last; None if that is not known."""
        return self._summaries.get(agenda_id)

    def keep(self, written: Iterable[StoredSummary]) -> None:
        """These were written, and the transaction that did is committed."""
        known = self._summaries
        for one in written:
            if one.summary is None:
                continue
            agenda_id = one.summary.agenda_id
            known.pop(agenda_id, None)  # to its end: what was written last is dropped last
            if _is_unfinished(one.summary) and _is_small(one.summary):
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
        self._summaries.clear()


def _is_unfinished(summary: Summary) -> bool:
    return not summary.state.is_terminal


def _is_small(summary: Summary) -> bool:
    if len(summary.operation_names) > _MAX_OPERATIONS or summary.appended or summary.history:
        return False
    operations = summary.operations.values()
    results = sum(0 if one.result is UNSET else len(one.result) for one in operations)
    return len(operations) <= _MAX_OPERATIONS and results <= _MAX_BYTES
