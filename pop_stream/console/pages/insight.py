"""One insight: its queue, and each customer's share beside what it is entitled to."""

from dataclasses import dataclass

from markupsafe import Markup

from pop_stream.api_models.queues import CustomerQueueView
from pop_stream.console.pages.overview import gap_of_bound
from pop_stream.console.pictures import share_bar
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.identity import Role


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A customer in the table; its parts are of all customers that are shown.

    Attributes:
        entitled: By its weight, among those with agendas waiting; None if it has none.
        actual: By what it was lately given; None if nobody was given anything.
    """

    id: str
    weight: float
    ready: int
    in_flight: int
    wait_s: float
    held_by: str | None
    entitled: float | None
    actual: float | None
    bar: Markup


async def insight(view: PageView) -> Page:
    """Its figures, its customers, and forms for their weights."""
    insight_id = view.parts["insight_id"]
    stored = await view.client.insights.get(insight_id)
    sample = await view.queues.get(view, insight_id)
    queue = sample.queue
    return Page(
        "insight.html",
        f"Insight {insight_id}",
        {
            "insight": stored.definition,
            "queue": queue,
            "gap_of_bound": gap_of_bound(queue),
            "customers": customer_rows(queue.customers) if queue else [],
            "may_define": view.is_operator and view.may(Role.OPERATE),
        },
        is_live=True,
    )


def customer_rows(customers: list[CustomerQueueView]) -> list[ShareRow]:
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
        held_by=one.held_by,
        entitled=entitled,
        actual=actual,
        bar=share_bar(entitled or 0.0, actual or 0.0, label=label),
    )
