"""The first page: what needs attention, and every insight as a row."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from pop_stream.api_models.queues import QueueView
from pop_stream.client import ApiUnavailableError, Selection
from pop_stream.console.pictures import sparkline
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.policy.lifecycle.states import State

ROWS = 50
"""Insights of one page."""

_LATELY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that a person should look at.

    Attributes:
        path: Of the page that shows more, below the console's; empty for none.
    """

    text: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class InsightRow:
    """An insight in the table; without an answer of its scheduler, `queue` is None."""

    id: str
    title: str
    queue: QueueView | None
    oldest: datetime | None
    gap_of_bound: float | None
    line: Markup


async def overview(view: PageView) -> Page:
    """What needs attention on top, and the insights that the viewer sees."""
    insights = await view.client.insights.page(
        fields=("id", "title"), limit=ROWS, cursor=view.query.get("cursor")
    )
    rows = await asyncio.gather(*(_row(view, dict(one)) for one in insights.items))
    return Page(
        "overview.html",
        "Overview",
        {
            "rows": rows,
            "attention": await _attention(view, rows),
            "next": insights.next,
        },
        is_live=True,
    )


async def _row(view: PageView, insight: dict[str, Any]) -> InsightRow:
    insight_id = str(insight["id"])
    sample = await view.queues.get(view, insight_id)
    queue, oldest = sample.queue, None
    if queue is not None and queue.ready:
        where = Selection(insight_id=(insight_id,), state=(State.READY,))
        first = await view.client.page(where, newest_first=False, limit=1)
        oldest = first.agendas[0].accepted_at if first.agendas else None
    return InsightRow(
        id=insight_id,
        title=str(insight.get("title") or ""),
        queue=queue,
        oldest=oldest,
        gap_of_bound=gap_of_bound(queue),
        line=sparkline(sample.ready, label=f"Ready agendas of {insight_id}, lately"),
    )


def gap_of_bound(queue: QueueView | None) -> float | None:
    """The widest difference of service as a part of what it may be; None without a bound."""
    if queue is None or queue.bound_s <= 0:
        return None
    return queue.gap_s / queue.bound_s


async def _attention(view: PageView, rows: list[InsightRow]) -> list[Attention]:
    found = [
        *(
            Attention(f"{row.id}: its scheduler does not answer", f"/insights/{row.id}")
            for row in rows
            if row.queue is None
        ),
        *(
            Attention(f"{row.id}: limited by {row.queue.limited_by}", f"/insights/{row.id}")
            for row in rows
            if row.queue is not None and row.queue.limited_by
        ),
    ]
    found += await _ended_badly(view)
    if view.is_operator:
        found += await _parts_away(view)
        found += await _paused(view)
    return found


async def _ended_badly(view: PageView) -> list[Attention]:
    since = view.now - _LATELY
    found: list[Attention] = []
    for state in (State.FAILED, State.EXPIRED, State.REFUSED):
        where = Selection(state=(state,), accepted_from=since)
        total = (await view.client.page(where, limit=1)).total
        if total:
            asked = urlencode({"state": state.value, "accepted_from": since.isoformat()})
            text = f"{total} agendas accepted in the last 24 h are {state.value}"
            found.append(Attention(text, f"/agendas?{asked}"))
    return found


async def _parts_away(view: PageView) -> list[Attention]:
    try:
        await view.client.readiness()
    except ApiUnavailableError as error:
        return [Attention(f"The API is not ready: {error}")]
    return []


async def _paused(view: PageView) -> list[Attention]:
    page = await view.client.customers.page({"paused": "true"}, fields=("id",), limit=20)
    return [
        Attention(f"Customer {one['id']} is paused: nothing of it is emitted")
        for one in page.items
    ]
