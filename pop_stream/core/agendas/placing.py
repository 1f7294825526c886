"""What the scheduler is told of an agenda: one place that says which of its fields matter."""

from datetime import datetime

from msgspec import Raw

from pop_stream.core.agendas.agenda import Agenda
from pop_stream.core.events import RoutedAgenda


def routed_agenda(
    agenda: Agenda, body: bytes | Raw, *, agenda_id: str, accepted_at: datetime
) -> RoutedAgenda:
    """The agenda for its first attempt; replace what is different for a later one.

    Args:
        agenda: Sound.
        body: The same as JSON, as its pullers get it.
        agenda_id: Its own, or the one it was given.
        accepted_at: From when on it waits.
    """
    return RoutedAgenda(
        agenda_id=agenda_id,
        customer_id=agenda.customer_id,
        accepted_at=accepted_at,
        agenda=Raw(body),
        priority=agenda.priority,
        rank=agenda.rank,
        fairness_key=agenda.fairness_key,
        operation_types=tuple(one.type for one in agenda.operations),
        cost_s=agenda.cost_s,
        not_before=agenda.not_before,
        expires_at=agenda.expires_at,
        held=agenda.hold,
        max_attempts=agenda.max_attempts,
        backoff=agenda.backoff,
    )
