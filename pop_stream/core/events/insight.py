"""What pullers read: `pop.insight.<id>`, keyed by agenda id, and `pop.controls`."""

from typing import Literal

import msgspec

from pop_stream.core.events.base import Event, Instant, Struct
from pop_stream.core.events.lifecycle import StopReason


class EmittedAgenda(Struct, frozen=True):
    """An agenda to run now. One record each, never a frame, so that lag counts agendas.

    Attributes:
        attempt: From 1; also the fence: report it with every event.
        lease_ms: Claim and renew within this time, or the agenda goes to someone else.
        agenda: The submission as accepted, id included.
        resumes: Whether operations of it may have succeeded in earlier attempts; their
            results are read over HTTP, `GET /v1/agendas/{id}/progress`.
        run_from: Of a later attempt, the first one of its run; 0 where that is not told. If
            the agenda has ended in that or a later one, there is nothing left to do.
    """

    agenda_id: str
    insight_id: str
    customer_id: str
    attempt: int
    accepted_at: Instant
    emitted_at: Instant
    lease_ms: int
    agenda: msgspec.Raw
    resumes: bool = False
    run_from: int = 0


# ---- pop.controls: what every puller hears, whatever it runs ----


class AttemptStop(Event, frozen=True, tag="attempt.stop"):
    """Whoever runs the attempt, or an older one, is to stop and say `agenda.stopped`.

    Attributes:
        accepted_at: As in what was emitted. What was accepted later under the id is another
            agenda, with attempts from 1 on. None if that is not known any more.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    reason: StopReason | Literal["outdated"]
    accepted_at: Instant | None = None
