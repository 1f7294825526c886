"""The handlers of `/v1/stats` and `/v1/usage`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, get_args

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import read_query
from pop_stream.api_models.stats import (
    DurationBucket,
    Durations,
    StatsPage,
    StatsRow,
    UsagePage,
    UsageRow,
)
from pop_stream.model.errors import Issue
from pop_stream.model.identity import Principal
from pop_stream.model.json_types import InstantField
from pop_stream.model.tenancy import candidate_ids, display_id
from pop_stream.policy.lifecycle.stats import ENDS, Measures, upper_bound_s
from pop_stream.ports.clock import Clock
from pop_stream.ports.stats import StatsGroup, StatsQuery, StatsReader

MAX_SPAN: Final = timedelta(days=400)
MAX_PAGE_SIZE: Final = 1_000
MAX_OFFSET: Final = 1_000_000
_TIMES: Final = frozenset({"hour", "day", "month"})

_Names = Annotated[
    tuple[Annotated[str, StringConstraints(max_length=300)], ...], Field(max_length=100)
]


class _Range(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    from_at: InstantField | None = None
    before_at: InstantField | None = None
    customer_id: _Names = ()
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 100
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class StatsListing(_Range):
    """Which sums are wanted, and which page of them."""

    group: Annotated[tuple[StatsGroup, ...], Field(max_length=len(get_args(StatsGroup)))] = (
        "hour",
        "insight_id",
    )
    insight_id: _Names = ()
    template_id: _Names = ()
    operation_type: _Names = ()


class UsageListing(_Range):
    """Whose usage is wanted, and which page of it."""

    per: Literal["day", "month", "all"] = "month"


class StatsEndpoints:
    """The handlers of stats and usage.

    Args:
        reader: Has the rows.
        clock: Ends a range that names no end.
    """

    def __init__(self, reader: StatsReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

    async def get_stats(self, request: web.Request) -> web.Response:
        """Sums by group, a page of them."""
        asked, principal = read_query(request, StatsListing), principal_of(request)
        groups = tuple(dict.fromkeys(asked.group))
        if len(_TIMES.intersection(groups)) > 1:
            remedy = "name one of hour, day and month"
            raise InvalidError([Issue("group", ", ".join(groups), remedy)])
        start, end = self._range(asked, timedelta(days=1))
        query = StatsQuery(
            from_at=start,
            before_at=end,
            groups=groups,
            customer_ids=_own(asked.customer_id, principal),
            insight_ids=asked.insight_id,
            template_ids=tuple(
                meant for one in asked.template_id for meant in candidate_ids(one, principal)
            ),
            operation_types=asked.operation_type,
            limit=asked.limit + 1,
            offset=asked.offset,
        )
        found = await with_timeout(self._reader.sums(query))
        rows = [
            _row(dict(zip(groups, one.values, strict=True)), one.measures, principal)
            for one in found[: asked.limit]
        ]
        page = StatsPage(
            from_at=start, before_at=end, items=rows, next=_next(asked, len(found))
        )
        return json_response(page, status=HTTPStatus.OK)

    async def get_usage(self, request: web.Request) -> web.Response:
        """What customers had of workers, a page of them."""
        asked, principal = read_query(request, UsageListing), principal_of(request)
        start, end = self._range(asked, timedelta(days=31))
        times: tuple[StatsGroup, ...] = () if asked.per == "all" else (asked.per,)
        query = StatsQuery(
            from_at=start,
            before_at=end,
            groups=("customer_id", *times),
            customer_ids=_own(asked.customer_id, principal),
            limit=asked.limit + 1,
            offset=asked.offset,
        )
        found = await with_timeout(self._reader.sums(query))
        rows = [_usage(one.values, one.measures) for one in found[: asked.limit]]
        page = UsagePage(
            from_at=start, before_at=end, items=rows, next=_next(asked, len(found))
        )
        return json_response(page, status=HTTPStatus.OK)

    def _range(self, asked: _Range, span: timedelta) -> tuple[datetime, datetime]:
        """The range, from the beginning of an hour.

        Raises:
            InvalidError: If it is empty or too long.
        """
        end = asked.before_at or self._clock.now()
        start = asked.from_at or end - span
        if not timedelta(0) < end - start <= MAX_SPAN:
            remedy = (
                f"must be before before_at, {end.isoformat()}, by {MAX_SPAN.days} days at most"
            )
            raise InvalidError([Issue("from_at", start.isoformat(), remedy)])
        return start.replace(minute=0, second=0, microsecond=0), end


def _own(named: Sequence[str], principal: Principal) -> tuple[str, ...]:
    """The customers asked for; of a customer, itself alone, or nobody if it names others."""
    if principal.customer_id is None:
        return tuple(named)
    is_asked = not named or principal.customer_id in named
    return (principal.customer_id if is_asked else "(nobody)",)


def _next(asked: _Range, found: int) -> int | None:
    return asked.offset + asked.limit if found > asked.limit else None


def _row(values: dict[StatsGroup, Any], measures: Measures, principal: Principal) -> StatsRow:
    template_id = values.get("template_id")
    attempts, worker_s = measures.attempts, measures.worker_us / 1e6
    return StatsRow(
        at=next((values[one] for one in values if one in _TIMES), None),
        insight_id=values.get("insight_id"),
        customer_id=values.get("customer_id"),
        template_id=template_id and display_id(template_id, principal.customer_id),
        operation_type=values.get("operation_type"),
        ends=_ends(measures),
        attempts=attempts,
        worker_s=worker_s,
        mean_s=worker_s / attempts if attempts else None,
        waits=_durations(measures.waits, measures.wait_us),
        runs=_durations(measures.runs, measures.run_us),
    )


def _usage(values: Sequence[Any], measures: Measures) -> UsageRow:
    customer_id, *times = values
    return UsageRow(
        customer_id=customer_id,
        at=times[0] if times else None,
        worker_s=measures.worker_us / 1e6,
        attempts=measures.attempts,
        agendas=_ends(measures),
    )


def _ends(measures: Measures) -> dict[str, int]:
    return {state.value: n for state, n in zip(ENDS, measures.ends, strict=True)}


def _durations(counts: Sequence[int], total_us: int) -> Durations:
    count = sum(counts)
    return Durations(
        count=count,
        mean_s=total_us / 1e6 / count if count else None,
        p50_s=_quantile(counts, 0.5),
        p90_s=_quantile(counts, 0.9),
        p99_s=_quantile(counts, 0.99),
        buckets=tuple(
            DurationBucket(le_s=upper_bound_s(place), count=one)
            for place, one in enumerate(counts)
            if one
        ),
    )


def _quantile(counts: Sequence[int], share: float) -> float | None:
    wanted, seen = share * sum(counts), 0
    for place, one in enumerate(counts):
        seen += one
        if one and seen >= wanted:
            return upper_bound_s(place)
    return None
