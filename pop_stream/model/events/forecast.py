"""Who would start when, as a scheduler replies to a query about other weights."""

from typing import Annotated

import msgspec

from pop_stream.model.events.base import Struct

CustomerWeights = dict[str, Annotated[float, msgspec.Meta(ge=1e-3, le=1e6)]]
"""Other weights than the customers have."""


class StartForecast(Struct, frozen=True):
    """When a customer's waiting agendas would start; nothing is started by asking.

    Attributes:
        next_s: Seconds until the next one; None if none would.
        last_s: Until the last one; None if it would not start within the horizon.
        started: How many would have started by each of some instants, evenly up to the
            horizon.
    """

    next_s: float | None = None
    last_s: float | None = None
    started: tuple[int, ...] = ()


class CustomerForecast(Struct, frozen=True):
    """A customer's starts with the present weights, and with those that were asked about."""

    customer_id: str
    ready: int
    weight: float
    new_weight: float
    before: StartForecast
    after: StartForecast


class QueueForecast(Struct, frozen=True):
    """Who would start when with other weights.

    Attributes:
        rate_per_s: Agendas claimed per second at present; 0 if nothing moves: then one is
            taken to start each second.
        horizon_s: Until the last start that was reckoned.
        others: Customers with agendas waiting that are left out.
    """

    rate_per_s: float
    horizon_s: float
    customers: tuple[CustomerForecast, ...]
    others: int = 0
