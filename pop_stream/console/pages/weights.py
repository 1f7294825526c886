"""A customer's weight, tried on the standing backlog and then saved; and pauses."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from multidict import MultiMapping

from pop_stream.api_models.queues import CustomerForecastView, ForecastView
from pop_stream.client import ApiNotFoundError
from pop_stream.console.numbers import version_in
from pop_stream.console.pictures import ChartLine, chart
from pop_stream.console.rendering import Page, duration
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import Issue, NotFoundError, SubmissionError
from pop_stream.model.identity import Role

_UNDEFINED: Final = 0
"""The version of a customer that is not defined."""

_COMMAND: Final = "command"


@dataclass(frozen=True, slots=True)
class StartRow:
    """A customer's next and last start, before and after, and what differs in words."""

    one: CustomerForecastView
    difference: str


async def forecast(view: PageView) -> Page:
    """Who would start when if a customer had another weight, with a form that saves it."""
    insight_id = view.parts["insight_id"]
    customer_id = view.query.get("customer", "")
    weight = _weight(view.query.get("weight", ""))
    found = await view.client.insights.forecast(insight_id, {customer_id: weight})
    version = await _version(view, customer_id)
    return Page(
        "forecast.html",
        f"{customer_id} with weight {weight:g}",
        {
            "insight_id": insight_id,
            "customer_id": customer_id,
            "weight": f"{weight:g}",
            "version": version,
            "forecast": found,
            "rows": [StartRow(one, _difference(one)) for one in found.customers],
            "before": _chart(found, "before"),
            "after": _chart(found, "after"),
            "may_define": view.may(Role.ADMIN),
        },
    )


async def set_weight(view: PageView, form: MultiMapping[str]) -> str:
    """Give a customer another weight; one that is not defined is defined by that.

    Returns:
        Where to go on: the insight that the form names.

    Raises:
        SubmissionError: If the weight is no number.
        PreconditionError: If its definition was changed since the form was made.
        ApiError: If the API does not take it.
    """
    weight = _weight(form.get("weight", ""))
    await _change(view, form, {"weight": weight})
    return f"/insights/{form.get('insight', '')}?did=weight"


async def pause_customer(view: PageView, form: MultiMapping[str]) -> str:
    """Pause or resume a customer, in all insights; returns where to go on."""
    action = _pause_or_resume(view)
    await _change(view, form, {"paused": action == "pause"})
    return f"/insights/{form.get('insight', '')}?did={action}"


async def pause_insight(view: PageView, form: MultiMapping[str]) -> str:
    """Pause or resume an insight; returns where to go on.

    Raises:
        PreconditionError: If its definition was changed since the form was made.
    """
    action, insight_id = _pause_or_resume(view), view.parts["insight_id"]
    version = version_in(form)
    await view.client.insights.patch(
        insight_id,
        {"paused": action == "pause"},
        if_match=version,
        reason=form.get("reason", ""),
    )
    return f"/insights/{insight_id}?did={action}"


async def _change(view: PageView, form: MultiMapping[str], fields: dict[str, object]) -> None:
    customer_id = view.parts["customer_id"]
    version = version_in(form) if "version" in form else None
    if version is None:
        version = await _version(view, customer_id)
    customers, reason = view.client.customers, form.get("reason", "")
    if version == _UNDEFINED:
        await customers.create({"id": customer_id, **fields}, reason=reason)
    else:
        await customers.patch(customer_id, fields, if_match=version, reason=reason)


async def _version(view: PageView, customer_id: str) -> int:
    try:
        return (await view.client.customers.get(customer_id)).version
    except (ApiNotFoundError, NotFoundError):
        return _UNDEFINED


def _pause_or_resume(view: PageView) -> str:
    action = view.parts["action"]
    if action not in {"pause", "resume"}:
        raise NotFoundError(_COMMAND, action[:50])
    return action


def _weight(text: str) -> float:
    try:
        weight = float(text.strip().replace(",", "."))
    except ValueError:
        weight = float("nan")
    if not isfinite(weight):
        raise SubmissionError([Issue("weight", text[:200], "must be a number, such as 2.5")])
    return weight


def _difference(one: CustomerForecastView) -> str:
    before, after = one.before.last_s, one.after.last_s
    if before is None or after is None:
        changed = one.after.started[-1:] != one.before.started[-1:]
        return "other starts within the horizon" if changed else "no difference to be seen"
    by = after - before
    if abs(by) < 0.05:  # noqa: PLR2004  # less is not shown
        return "as before"
    return f"{duration(abs(by))} {'later' if by > 0 else 'sooner'}"


def _chart(found: ForecastView, which: str) -> object:
    series = [
        ChartLine(one.customer_id, _points(getattr(one, which).started, found.horizon_s))
        for one in found.customers
    ]
    text = "with the present weights" if which == "before" else "with the new weight"
    label = f"Agendas started over time {text}, by customer; the table says when"
    return chart(series, label=label, x_axis=("now", duration(found.horizon_s)), unit="")


def _points(started: Sequence[int], horizon_s: float) -> list[tuple[float, float]]:
    step = horizon_s / max(1, len(started))
    return [
        (0.0, 0.0),
        *((step * (number + 1), float(count)) for number, count in enumerate(started)),
    ]
