"""Answers about what was counted by hour."""

from collections.abc import Mapping

from pop_stream.api_models.base import Instant, ResponseModel


class DurationBucket(ResponseModel, frozen=True):
    """How many took so long at most, and longer than the bucket before; null has no bound."""

    le_s: float | None
    count: int


class Durations(ResponseModel, frozen=True):
    """Waits or runs; quantiles are upper bounds of their buckets, which double each time.

    Attributes:
        p50_s: Half took so long at most; null if there were none, or there is no bound.
        buckets: Those that are not empty.
    """

    count: int
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    buckets: tuple[DurationBucket, ...]


class StatsRow(ResponseModel, frozen=True):
    """One group; what it was not grouped by is null.

    Attributes:
        at: The hour, day or month, of UTC.
        template_id: Empty for agendas without one.
        ends: Agendas that ended, by state; none are counted of operation types.
        attempts: Reported attempts; of an operation type, those that had such operations.
        worker_s: What they took of workers.
        mean_s: Of one attempt, as it was learned; null if there was none.
        waits: From acceptance to the first start; none of operation types.
        runs: From the start of the last attempt to the end; none of operation types.
    """

    at: Instant | None
    insight_id: str | None
    customer_id: str | None
    template_id: str | None
    operation_type: str | None
    ends: Mapping[str, int]
    attempts: int
    worker_s: float
    mean_s: float | None
    waits: Durations
    runs: Durations


class StatsPage(ResponseModel, frozen=True):
    """A page of groups, in their order.

    Attributes:
        next: The `offset` of the next page; null on the last one.
    """

    from_at: Instant
    before_at: Instant
    items: list[StatsRow]
    next: int | None


class UsageRow(ResponseModel, frozen=True):
    """What a customer had of workers, in one day, month or all of the range (null)."""

    customer_id: str
    at: Instant | None
    worker_s: float
    attempts: int
    agendas: Mapping[str, int]


class UsagePage(ResponseModel, frozen=True):
    """A page of usage, by customer and time.

    Attributes:
        next: The `offset` of the next page; null on the last one.
    """

    from_at: Instant
    before_at: Instant
    items: list[UsageRow]
    next: int | None
