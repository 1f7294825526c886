"""`pop.poll-demand` and `pop.deliveries`: how the API gets agendas for callers over HTTP.

`pop.poll-demand` is keyed by insight id: whoever owns its partition takes agendas of the
insight for the callers of all processes. `pop.deliveries` every process reads whole.
"""

from msgspec import field

from pop_stream.model.events.base import Event
from pop_stream.model.events.scheduling import EmittedAgenda


class PollWanted(Event, frozen=True):
    """How many agendas of an insight the callers of a process wait for, now.

    Attributes:
        api_id: Of the process.
        wanted: How many agendas its callers wait for.
        received: How many it got so far, by who delivered them; shows what is on its way.
    """

    insight_id: str
    api_id: str
    wanted: int
    received: dict[str, int] = field(default_factory=dict)


class DeliveryReturned(Event, frozen=True):
    """An agenda that came to a process whose caller had gone; its lease runs on."""

    insight_id: str
    emitted: EmittedAgenda


class AgendaDelivered(Event, frozen=True):
    """A claimed agenda, for a caller of one process; all others skip it.

    Attributes:
        api_id: Of the process.
        dispatcher_id: Who took it from the insight's topic.
    """

    api_id: str
    dispatcher_id: str
    emitted: EmittedAgenda


class PollRejected(Event, frozen=True):
    """Whose task it is to take an insight's agendas for callers cannot do it.

    Attributes:
        reason: With the remedy; shown to callers.
    """

    insight_id: str
    reason: str


PollDemandEvent = PollWanted | DeliveryReturned
DeliveryEvent = AgendaDelivered | PollRejected
