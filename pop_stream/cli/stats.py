"""`pop-stream stats` and `pop-stream usage`: what was counted by hour, through the HTTP API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from pop_stream.cli.calling import with_api
from pop_stream.cli.output import JsonFlag, console, emit, table
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.api_models.stats import StatsPage, UsagePage
    from pop_stream.ports.stats import StatsGroup

From = Annotated[datetime | None, typer.Option("--from", help="Beginning of the range, UTC.")]
Before = Annotated[
    datetime | None, typer.Option("--before", help="End of the range, UTC; else the present.")
]
Customers = Annotated[
    list[str] | None, typer.Option("--customer", help="Only its own; may be given again.")
]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Rows at most.")]
Offset = Annotated[int, typer.Option(min=0, help="Rows to leave out first.")]


def stats(  # noqa: PLR0913, PLR0917  # each is an option
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Of hour, day, month, insight_id, customer_id, template_id, operation_type; "
            "may be given again."
        ),
    ] = None,
    customer: Customers = None,
    insight: Annotated[list[str] | None, typer.Option(help="Only these insights.")] = None,
    from_at: From = None,
    before_at: Before = None,
    limit: Limit = 100,
    offset: Offset = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show ends, worker-seconds, waits and runs by hour, insight or whatever is asked for."""
    groups = _groups(group or ("hour", "insight_id"))

    page = with_api(
        lambda client: client.stats.page(
            groups,
            from_at=_utc(from_at),
            before_at=_utc(before_at),
            limit=limit,
            offset=offset,
            customer_id=customer or (),
            insight_id=insight or (),
        )
    )
    if as_json:
        emit(page)
    else:
        _show_stats(page, groups)


def usage(  # noqa: PLR0913, PLR0917  # each is an option
    customer: Customers = None,
    per: Annotated[str, typer.Option(help="day, month or all.")] = "month",
    from_at: From = None,
    before_at: Before = None,
    limit: Limit = 100,
    offset: Offset = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show what customers are billed for: worker-seconds, and agendas by how they ended."""
    if per not in {"day", "month", "all"}:
        msg = f"--per {per}: is day, month or all"
        raise UsageError(msg)
    page = with_api(
        lambda client: client.stats.usage(
            customer or (),
            per=per,  # type: ignore[arg-type]  # checked above
            from_at=_utc(from_at),
            before_at=_utc(before_at),
            limit=limit,
            offset=offset,
        )
    )
    if as_json:
        emit(page)
    else:
        _show_usage(page)


COMMANDS: Final = (stats, usage)


def _groups(named: Sequence[str]) -> "Sequence[StatsGroup]":
    from pop_stream.ports.stats import StatsGroup

    known: Sequence[StatsGroup] = get_args(StatsGroup)
    found: list[StatsGroup] = [one for name in named for one in known if one == name]
    if len(found) < len(named):
        msg = f"--group: is one of {', '.join(known)}"
        raise UsageError(msg)
    return found


def _utc(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)


def _show_stats(page: "StatsPage", groups: "Sequence[StatsGroup]") -> None:
    measures = ("ended", "failed", "attempts", "worker_s", "mean_s", "wait p90", "run p90")
    rows = [
        [
            *(_group_text(one.at if name in _TIMES else getattr(one, name)) for name in groups),
            str(sum(one.ends.values())),
            str(one.ends["failed"]),
            str(one.attempts),
            f"{one.worker_s:.3f}",
            _number(one.mean_s),
            _number(one.waits.p90_s),
            _number(one.runs.p90_s),
        ]
        for one in page.items
    ]
    console().print(table((*groups, *measures), rows))


def _show_usage(page: "UsagePage") -> None:
    states = ("succeeded", "failed", "cancelled", "expired", "refused")
    rows = [
        [
            one.customer_id,
            _group_text(one.at),
            f"{one.worker_s:.3f}",
            str(one.attempts),
            *(str(one.agendas[state]) for state in states),
        ]
        for one in page.items
    ]
    console().print(table(("customer", "since", "worker_s", "attempts", *states), rows))


_TIMES: Final = frozenset({"hour", "day", "month"})


def _group_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return "" if value is None else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
