"""The first page: what needs attention, and every insight as a row."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from pop_stream.api_models.queues import QueueView
from pop_stream.client import ApiUnavailableError, Selection
from pop_stream.console.pictures import sparkline
from pop_stream.console.rendering import Page, number
from pop_stream.console.viewing import PageView
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

ROWS = 50
"""Insights of one page."""

_KINDS: Final[Mapping[str, str]] = {
    "unreadable": "records that no part can read",
    "refused": "submissions that were refused",
    "exhausted": "agendas that failed for good",
    "webhook": "webhooks that could not be delivered",
}
_HELD_UP: Final[Mapping[str | None, str]] = {
    "paused": "nothing is emitted while it is paused",
    "health": "its health lets fewer agendas run",
}
"""What somebody can end; a cap or a pool that is used up is work going on as it should."""

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
            Attention(f"{row.id}: {_HELD_UP[row.queue.limited_by]}", f"/insights/{row.id}")
            for row in rows
            if row.queue is not None and row.queue.limited_by in _HELD_UP
        ),
    ]
    asked = [_ended_badly(view), _retrying(view), _dead_letters(view)]
    if view.is_operator:
        asked += [_parts_away(view), _paused(view)]
    for more in await asyncio.gather(*asked):
        found += more
    if view.is_operator and view.may(Role.ADMIN):
        found += [Attention(one, "/doctor") for one in view.findings.get(view)]
    return found


async def _ended_badly(view: PageView) -> list[Attention]:
    # By the hour: a page whose filter moved with every second would be sent again each time.
    since = view.now.replace(minute=0, second=0, microsecond=0) - _LATELY
    found: list[Attention] = []
    states = (State.FAILED, State.EXPIRED, State.REFUSED)
    pages = await asyncio.gather(
        *(
            view.client.page(Selection(state=(one,), accepted_from=since), limit=1)
            for one in states
        )
    )
    for state, page in zip(states, pages, strict=True):
        if page.total:
            asked = urlencode({"state": state.value, "accepted_from": since.isoformat()})
            many = f"{number(page.total)}{' or more' if page.total_is_capped else ''}"
            text = f"{many} agendas accepted in the last 24 h are {state.value}"
            found.append(Attention(text, f"/agendas?{asked}"))
    return found


async def _retrying(view: PageView) -> list[Attention]:
    page = await view.client.page(Selection(state=(State.RETRYING,)), limit=1)
    if not page.total:
        return []
    text = f"{number(page.total)} agendas lost an attempt, and are tried again"
    return [Attention(text, "/agendas?state=retrying")]


async def _dead_letters(view: PageView) -> list[Attention]:
    """Open letters by kind; of webhooks and what cannot be read nothing else says so."""
    counts = await view.client.dead_letters.reasons()
    by_kind: Counter[str] = Counter()
    for one in counts.reasons:
        by_kind[one.kind] += one.letters
    return [
        Attention(
            f"{number(letters)}{' or more' if counts.total_is_capped else ''} dead letters: "
            f"{_KINDS[kind]}",
            f"/dead-letters?kind={kind}",
        )
        for kind, letters in by_kind.items()
    ]


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
