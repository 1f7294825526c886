"""`pop.quota-usage`: how much of each customer waits and is on its way.

Every ingress, a process of the API or of ingest, reads all of it.

Counts are absolute, so a record that is lost is repaired by the next one, and name only
customers that changed, unless they are whole.
"""

from typing import Literal

from msgspec import field

from pop_stream.model.events.base import Event, Instant, Struct


class CapacityLimit(Struct, frozen=True):
    """How near to its limit the scheduler of an insight is; reported from nine tenths on.

    Attributes:
        what: Of which there is much: agendas, or bytes of them.
        limit: Most that the scheduler takes, of all its insights.
        present: What it has, of all its insights.
    """

    what: Literal["agendas", "bytes"]
    limit: int
    present: int

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be admitted."""
        return self.present >= self.limit


class BacklogUsage(Event, frozen=True):
    """What waits in an insight, as its scheduler counts it.

    Attributes:
        customers: Ready agendas by customer, of those that have a quota; and of all under
            `insight/<id>`, if the insight has one.
        is_complete: Whether customers that are not named have none.
        placed: By partition of `pop.submissions`, offset and index of the last agenda placed.
        capacity_limit: None while there is room for much more.
    """

    insight_id: str
    at: Instant
    customers: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    capacity_limit: CapacityLimit | None = None


class IngressUsage(Event, frozen=True):
    """What a process admitted: one of the API, or one of ingest.

    Attributes:
        ingress_id: Of the process.
        number: From 1, growing, so that a repeat is known.
        admitted: Since the last number, of customers with a rate.
        in_flight: By customer, or `insight/<id>`, with a quota: admitted, and not yet counted
            by the next part.
        is_complete: Whether customers that are not named have none in flight.
        started_up_to: By partition of `pop.submissions`, the offset up to which it has begun to
            take submissions in; what lies before may have been accepted.
        processed_up_to: Likewise up to which it has: all before is counted here or by
            schedulers.
    """

    ingress_id: str
    number: int
    admitted: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False
    started_up_to: dict[str, int] = field(default_factory=dict)
    processed_up_to: dict[str, int] = field(default_factory=dict)


UsageEvent = BacklogUsage | IngressUsage
