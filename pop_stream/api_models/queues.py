"""Answers about queues: what waits in an insight, and why an agenda waits."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.agenda import Id
from pop_stream.policy.lifecycle.states import State


class CustomerQueueView(ResponseModel, frozen=True):
    """One customer in an insight's queue.

    Attributes:
        share: Recent service per weight, as a multiple of the mean of backlogged customers.
        wait_s: Recent mean of the wait from acceptance to emission.
        held_by: What keeps all of its agendas waiting: paused, max_in_flight or rate.
        delivered_s: Worker-seconds of its agendas that ended; it only grows, and begins again
            when another scheduler takes over, or after the customer was idle.
    """

    customer_id: str
    ready: int
    in_flight: int
    weight: float
    share: float
    wait_s: float
    held_by: str | None
    delivered_s: float


class QueueView(ResponseModel, frozen=True):
    """What waits in an insight, whose it is, and how fast it goes.

    Attributes:
        ready: Agendas that wait for their turn.
        waiting: Agendas with an instant to wait for.
        held: Agendas that wait for their release.
        lag: Emitted agendas that no puller has claimed.
        slots: How many agendas could be emitted now.
        limited_by: What keeps it from emitting though its topic is short and agendas are
            ready: paused, health, max_in_flight or pool; null if nothing does.
        target: Unclaimed agendas that a refill aims at.
        rate_per_s: Agendas claimed per second, lately.
        gap_s: Widest difference of customers' places on the virtual clock.
        bound_s: What the gap cannot exceed.
        health: By what its cap on agendas in flight is multiplied; 1 if it is well.
        health_by: What that comes from: failures, losses, or the source that reported it.
        health_reason: In the words of that source.
        health_until: When its report becomes void.
        eligible: Ready agendas that nothing keeps waiting but busy pullers: not paused, capped
            or limited.
        eligible_s: Worker-seconds that these are estimated to take.
        oldest_wait_s: For how long the oldest ready agenda has been accepted.
        replicas_wanted: Pullers, of `puller_runners` runners each, that work it off within
            `wanted_drain_s`, and never fewer than those that run what is running.
        customers: Those with most waiting, at most 50.
        other_customers: How many more there are.
    """

    insight_id: str
    at: Instant
    algorithm: str
    ready: int
    waiting: int
    held: int
    lag: int
    in_flight: int
    slots: int
    limited_by: str | None
    target: int
    rate_per_s: float
    gap_s: float
    bound_s: float
    health: float
    health_by: str | None
    health_reason: str | None
    health_until: Instant | None
    eligible: int
    eligible_s: float
    oldest_wait_s: float
    replicas_wanted: int
    customers: list[CustomerQueueView]
    other_customers: int


class HealthReportView(ResponseModel, frozen=True):
    """A value of an insight's health that was passed on to its scheduler.

    Attributes:
        until: When it becomes void.
    """

    insight_id: str
    source: str
    coefficient: float
    until: Instant


class WhyView(ResponseModel, frozen=True):
    """Why an agenda is where it is, in words and figures.

    Attributes:
        position: About how many are emitted up to and with it; null unless it waits.
        own_ahead: How many of these are its customer's own; null unless it waits.
        urgent_ahead: How many of these go first for their priority; null unless it waits.
        rises_at: When it counts as one priority more urgent; null if it never does.
        eta_s: Until it is claimed, at the present rate; null while nothing moves.
        until: When it goes on, of one with an instant to wait for.
        stopping: Why its attempt is to stop; null if it is not.
        declared_s: Its declared cost, if that is so far beyond what is usual that it counts
            for less; else null.
        counts_as_s: What it counts as then, in worker-seconds.
        queue: Its insight's queue; null once it has ended.
    """

    id: str
    state: State
    why: str
    insight_id: str | None
    position: int | None
    own_ahead: int | None
    urgent_ahead: int | None
    rises_at: Instant | None
    eta_s: float | None
    until: Instant | None
    stopping: str | None
    declared_s: float | None
    counts_as_s: float | None
    customer: CustomerQueueView | None
    queue: QueueView | None


class ForecastRequest(BaseModel):
    """Other weights, by customer, to see what they would do; nothing is changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: Annotated[
        Mapping[Id, Annotated[float, Field(ge=1e-3, le=1e6)]],
        Field(min_length=1, max_length=50, description="As in the customers' definitions."),
    ]


class StartForecastView(ResponseModel, frozen=True):
    """When a customer's waiting agendas would start, in seconds from now.

    Attributes:
        next_s: The next one; null if none would.
        last_s: The last one; null if it would not within the horizon.
        started: How many by each of some instants, evenly from the first to the horizon.
    """

    next_s: float | None
    last_s: float | None
    started: Sequence[int]


class CustomerForecastView(ResponseModel, frozen=True):
    """A customer's starts with the present weights, and with those of the request."""

    customer_id: str
    ready: int
    weight: float
    new_weight: float
    before: StartForecastView
    after: StartForecastView


class ForecastView(ResponseModel, frozen=True):
    """Who would start when with other weights, if nothing else came.

    Attributes:
        rate_per_s: Agendas claimed per second, lately; while nothing moves, one is taken to
            start each second.
        horizon_s: Until the last start that was reckoned; at most 20,000 are.
        customers: Those with agendas waiting, at most 50; those of the request first.
        other_customers: How many more there are.
    """

    insight_id: str
    at: Instant
    algorithm: str
    rate_per_s: float
    horizon_s: Annotated[float, Meta(ge=0)]
    customers: list[CustomerForecastView]
    other_customers: int
