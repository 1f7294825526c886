"""One insight: its queue, each customer's share beside what it is entitled to, and service."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from pydantic import ValidationError

from pop_stream.api_models.commands import Selection
from pop_stream.api_models.queues import CustomerQueueView, QueueView
from pop_stream.client import ApiError
from pop_stream.console.pages.agenda import hints, why_of
from pop_stream.console.pages.overview import gap_of_bound
from pop_stream.console.pictures import ChartLine, chart, share_bar
from pop_stream.console.rendering import Page, duration, instant
from pop_stream.console.viewing import PageView, ServicePoint
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

PAGE: Final = 50
"""Waiting agendas of one page of a customer's queue."""

_CUSTOMER: Final = "customer"
_WAITING: Final = (State.READY, State.WAITING, State.HELD)
_LIMITED_BY: Final = {
    "paused": "The insight is paused: nothing of it is emitted.",
    "max_in_flight": "The insight has as many in flight as it may.",
    "pool": "Its resource pool has no room for more of it.",
}
_HELD_BY: Final = {
    "paused": "it is paused",
    "max_in_flight": "as many in flight as it may have",
    "rate": "its rate limit",
}


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A customer in the table; its parts are of all customers that are shown.

    Attributes:
        entitled: By its weight, among those with agendas waiting; None if it has none.
        actual: By what it was lately given; None if nobody was given anything.
        held_by: What holds all of it back, in words; empty for nothing.
        is_paused: Whether that is a pause.
    """

    id: str
    weight: float
    ready: int
    in_flight: int
    wait_s: float
    held_by: str
    is_paused: bool
    entitled: float | None
    actual: float | None
    bar: Markup


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """What a customer was given since the first look, and as a part of all that was."""

    id: str
    delivered_s: float
    per_weight: float
    part: float | None


async def insight(view: PageView) -> Page:
    """Its figures, its customers, and forms for their weights and pauses."""
    insight_id = view.parts["insight_id"]
    stored = await view.client.insights.get(insight_id)
    sample = await view.queues.get(view, insight_id)
    queue = sample.queue
    return Page(
        "insight.html",
        f"Insight {insight_id}",
        {
            "insight": stored.definition,
            "version": stored.version,
            "queue": queue,
            "limited_by": _LIMITED_BY.get(queue.limited_by or "", "") if queue else "",
            "gap_of_bound": gap_of_bound(queue),
            "customers": customer_rows(queue.customers) if queue else [],
            "service": service(sample.service.points),
            "may_define": view.is_operator and view.may(Role.ADMIN),
            "may_forecast": view.is_operator,
        },
        is_live=True,
    )


def customer_rows(customers: Sequence[CustomerQueueView]) -> list[ShareRow]:
    """Customers with their parts, in the order given."""
    weights = sum(one.weight for one in customers if one.ready)
    given = sum(one.share * one.weight for one in customers)
    return [_row(one, weights, given) for one in customers]


def _row(one: CustomerQueueView, weights: float, given: float) -> ShareRow:
    entitled = one.weight / weights if one.ready and weights else None
    actual = one.share * one.weight / given if given else None
    label = (
        f"{one.customer_id} has {100 * (actual or 0):.0f} % "
        f"and is entitled to {100 * (entitled or 0):.0f} %"
    )
    return ShareRow(
        id=one.customer_id,
        weight=one.weight,
        ready=one.ready,
        in_flight=one.in_flight,
        wait_s=one.wait_s,
        held_by=_HELD_BY.get(one.held_by or "", one.held_by or ""),
        is_paused=one.held_by == "paused",
        entitled=entitled,
        actual=actual,
        bar=share_bar(entitled or 0.0, actual or 0.0, label=label),
    )


def service(points: Sequence[ServicePoint]) -> dict[str, Any]:
    """The cumulative service as a chart, and as rows that say the same."""
    if not points:
        return {"chart": "", "rows": [], "since": None}
    begin, last = points[0], points[-1]
    weights = {name: one for point in points for name, one in point.weights.items()}
    total = sum(last.delivered_s.values())
    rows = [
        ServiceRow(
            id=name,
            delivered_s=given,
            per_weight=given / weights.get(name, 1.0),
            part=given / total if total else None,
        )
        for name, given in last.delivered_s.items()
    ]
    rows.sort(key=lambda one: (-one.per_weight, one.id))
    series = [
        ChartLine(
            row.id,
            [
                (
                    (point.at - begin.at).total_seconds(),
                    point.delivered_s.get(row.id, 0.0) / weights.get(row.id, 1.0),
                )
                for point in points
            ],
        )
        for row in rows
        if row.delivered_s
    ]
    picture = chart(
        series,
        label="Service per weight since the first look, by customer; the table says the same",
        x_axis=(instant(begin.at)[11:], instant(last.at)[11:]),
        unit="s",
    )
    return {"chart": picture, "rows": rows, "since": begin.at}


async def customer_queue(view: PageView) -> Page:
    """What waits of one customer in an insight, and why any of it does."""
    insight_id, customer_id = view.parts["insight_id"], view.parts["customer_id"]
    if not view.is_operator and view.caller.customer_id != customer_id:
        raise NotFoundError(_CUSTOMER, customer_id[:200])
    stored = await view.client.insights.get(insight_id)
    try:
        where = Selection(insight_id=(insight_id,), customer_id=(customer_id,), state=_WAITING)
    except ValidationError:
        raise NotFoundError(_CUSTOMER, customer_id[:200]) from None  # nobody is called so
    listed = await view.client.page(
        where, newest_first=False, limit=PAGE, cursor=view.query.get("cursor") or None
    )
    sample = await view.queues.get(view, insight_id)
    asked = view.query.get("why") or (listed.agendas[0].id if listed.agendas else "")
    why = await why_of(view, asked) if asked else None
    return Page(
        "customer_queue.html",
        f"{customer_id} in {insight_id}",
        {
            "insight": stored.definition,
            "customer_id": customer_id,
            "limits": await _limits(view, customer_id),
            "row": _found(sample.queue, customer_id),
            "listed": listed,
            "next": f"?{urlencode({'cursor': listed.next})}" if listed.next else "",
            "why": why,
            "hints": hints(why),
        },
        is_live=True,
    )


def _found(queue: QueueView | None, customer_id: str) -> ShareRow | None:
    rows = customer_rows(queue.customers) if queue else []
    return next((one for one in rows if one.id == customer_id), None)


async def _limits(view: PageView, customer_id: str) -> dict[str, str]:
    """What its definition sets, in words; nothing of one that is not defined."""
    try:
        one = (await view.client.customers.get(customer_id)).definition
    except (ApiError, NotFoundError):
        return {}
    found = {"Weight": f"{one.weight:g}"}
    if one.paused:
        found["Paused"] = "nothing of it is emitted"
    if one.max_in_flight is not None:
        found["Most in flight"] = f"{one.max_in_flight}"
    if one.rate_per_s is not None:
        found["Most emitted"] = f"{one.rate_per_s:g} / s, {one.burst} at once"
    if one.max_ready is not None:
        found["Most waiting"] = f"{one.max_ready}"
    if one.max_submit_per_s is not None:
        burst = duration(one.submit_burst / one.max_submit_per_s)
        found["Most submitted"] = f"{one.max_submit_per_s:g} / s, {burst} of it at once"
    return found
