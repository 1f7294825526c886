"""Agendas that workers hold over HTTP, as `pop.handouts` told; bounded memory, no clock."""

from typing import Final

from pop_stream.core.events import EmittedAgenda

MAX_DELIVERED: Final = 20_000
MAX_DELIVERED_BYTES: Final = 64 * 1024 * 1024
"""From so many agendas, or so many bytes of them, the oldest are forgotten."""


class DeliveredAttempts:
    """The newest attempt of the agendas handed out last."""

    def __init__(self) -> None:
        self._by_agenda: dict[str, EmittedAgenda] = {}
        self._bytes = 0

    def remember(self, emitted: EmittedAgenda) -> None:
        """Take in an attempt; an older one than is known changes nothing.

        An id whose agenda was removed may be used anew, with attempts from 1 on.
        """
        known = self._by_agenda.get(emitted.agenda_id)
        if known is not None:
            is_of_one_life = known.accepted_at >= emitted.accepted_at
            if known.attempt > emitted.attempt and is_of_one_life:
                return
            self._forget(emitted.agenda_id)
        self._by_agenda[emitted.agenda_id] = emitted
        self._bytes += len(emitted.agenda)
        while len(self._by_agenda) > MAX_DELIVERED or self._bytes > MAX_DELIVERED_BYTES:
            self._forget(next(iter(self._by_agenda)))

    def of(self, agenda_id: str) -> EmittedAgenda | None:
        """The newest attempt heard of."""
        return self._by_agenda.get(agenda_id)

    def _forget(self, agenda_id: str) -> None:
        self._bytes -= len(self._by_agenda.pop(agenda_id).agenda)
