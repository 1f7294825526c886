"""Batches: agendas with one batch key, and which of them one that is chosen brings along.

A companion is chosen out of turn, in the same round, and charged to its own customer. So that
no customer gains by it:

- its customer may go: it is not paused, below its cap, and has a token;
- it is as urgent as what its customer would send next, and with strict priorities as what is
  chosen;
- its customer, and its fairness key among the customer's, is not further ahead of the present
  than the insight's `companions` times what it is itself taken to cost. So it gets part of its
  share sooner and no more of it; the gap bound grows by as many agendas.

What was tried before is no companion. In memory only: batches are found again in the pages.
"""

from collections.abc import Iterator
from typing import Final

from pop_stream.policy.backlog.agenda_index import IN_FLIGHT, READY
from pop_stream.policy.backlog.state import BacklogState
from pop_stream.policy.fairness.flow import Pick

LOOKED_AT: Final = 4
"""So many times as many as are wanted are looked at, for some may not go."""


class Batches:
    """Chooses the companions of agendas that were picked."""

    def __init__(self, backlog: BacklogState) -> None:
        self._backlog = backlog

    def companions(self, pick: Pick, most: int) -> Iterator[Pick]:
        """Pick up to `most` others of the batch, about the oldest first; O(most).

        Args:
            pick: What was picked just now.
            most: How many more the round may choose.
        """
        backlog, index = self._backlog, self._backlog.index
        wanted = min(most, backlog.insight.companions)
        batch_key = index.options(pick.ref).batch_key if wanted > 0 else ""
        if not batch_key:
            return
        backlog.batches.remove(batch_key, pick.ref)
        for ref in backlog.batches.first(batch_key, LOOKED_AT * wanted):
            page, slot = index.at(ref)
            state = page.states[slot]
            if state in IN_FLIGHT:
                backlog.batches.remove(batch_key, ref)
            if state != READY:
                continue
            companion = backlog.queue.pick_companion(
                page.customers[slot],
                backlog.entry(ref),
                page.keys[slot],
                estimate=backlog.cost(ref),
                level=pick.level,
                most=backlog.insight.companions,
            )
            if companion is not None:
                backlog.batches.remove(batch_key, ref)
                wanted -= 1
                yield companion
            if not wanted:
                return
