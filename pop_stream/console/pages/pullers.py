"""Who pulls what, and which insights nobody pulls from."""

from datetime import timedelta
from typing import Final

from pop_stream.api_models.pulls import PullerView
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView

PAGE: Final = 200
"""Pullers of one page."""

_INSIGHTS: Final = 200
"""Insights that are looked through for one from which nobody pulls."""

_SILENT_AFTER: Final = timedelta(minutes=2)
"""A puller that has work renews its leases more often than that; one without gives no sign."""


async def pullers(view: PageView) -> Page:
    """Pullers by insight, with their last signs of life; one insight's if it is named."""
    insight_id = view.query.get("insight_id", "").strip()
    after = view.query.get("after", "")
    listed = await view.client.puller_page(
        insight_id=insight_id or None, limit=PAGE, after=after or None
    )
    silent_since = view.now - _SILENT_AFTER
    is_whole = not (insight_id or after or listed.next)
    return Page(
        "pullers.html",
        "Pullers",
        {
            "insight_id": insight_id,
            "rows": [(one, one.last_sign_at < silent_since) for one in listed.pullers],
            "next": listed.next,
            "unpulled": await _unpulled(view, listed.pullers) if is_whole else (),
        },
        is_live=True,
    )


async def _unpulled(view: PageView, known: list[PullerView]) -> list[str]:
    """Insights from which nobody was seen to pull."""
    page = await view.client.insights.page(fields=("id",), limit=_INSIGHTS)
    pulled = {one.insight_id for one in known}
    return [str(one["id"]) for one in page.items if one["id"] not in pulled]
