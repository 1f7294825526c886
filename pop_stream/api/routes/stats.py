"""The routes of stats and usage."""

from typing import Final, get_args

from pop_stream.api.http.access import read_access
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.route import QueryParameter, Route, RouteResponse, repeatable
from pop_stream.api.stats.endpoints import (
    MAX_OFFSET,
    MAX_PAGE_SIZE,
    StatsEndpoints,
    StatsListing,
    UsageListing,
)
from pop_stream.api_models.stats import StatsPage, UsagePage
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.stats import StatsGroup

_INSTANT: Final = {"type": "string", "format": "date-time"}
_TEXT: Final = {"type": "string", "maxLength": 300}
_RANGE: Final = (
    QueryParameter("from_at", "Hours from this instant on; a day or 31 ago.", _INSTANT),
    QueryParameter("before_at", "Hours that begin before; the present if left out.", _INSTANT),
    repeatable(UsageListing, "customer_id", "Of one of these customers.", _TEXT),
    QueryParameter(
        "limit",
        "Rows of a page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 100},
    ),
    QueryParameter(
        "offset",
        "`next` of the page before.",
        {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "default": 0},
    ),
)
_LISTS: Final = (
    (
        "group",
        "By what rows are kept apart; hour and insight_id if left out.",
        {"enum": [*get_args(StatsGroup)]},
    ),
    ("insight_id", "Of one of these insights.", _TEXT),
    ("template_id", "Of one of these templates.", _TEXT),
    ("operation_type", "Of one of these operation types.", _TEXT),
)


def stats_routes(stats: StatsEndpoints) -> tuple[Route, ...]:
    """What was counted by hour, and what customers are billed for."""
    return (_stats_route(stats), _usage_route(stats))


def _stats_route(stats: StatsEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/stats",
        stats.get_stats,
        "getStats",
        "Ends, worker-seconds, waits and runs, added up by hour, insight and more",
        (RouteResponse("A page.", (StatsPage,)),),
        (InvalidError, UnavailableError),
        query=(
            *(repeatable(StatsListing, *one) for one in _LISTS),
            *_RANGE,
        ),
        access=read_access(),
    )


def _usage_route(stats: StatsEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/usage",
        stats.get_usage,
        "getUsage",
        "Worker-seconds and ended agendas of customers, by day, month or in all",
        (RouteResponse("A page.", (UsagePage,)),),
        (InvalidError, UnavailableError),
        query=(
            QueryParameter(
                "per",
                "A row for each of these.",
                {"enum": ["day", "month", "all"], "default": "month"},
            ),
            *_RANGE,
        ),
        access=read_access(),
    )
