"""Why an agenda waits, in words."""

from typing import Final

import msgspec

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import Overdeclared
from pop_stream.model.events.scheduling import CustomerShare, QueuedAgendaStatus, QueueDescribed
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

_HELD = {
    "paused": "customer {customer} is paused",
    "max_in_flight": "customer {customer} has as many in flight as it may ({in_flight})",
    "rate": "customer {customer} is at its rate limit",
}

_NO_CLAIMS = "nothing is being claimed at present: are pullers running?"

_LIMITS = {
    "paused": "insight {insight} is paused",
    "health": "insight {insight} has {in_flight} in flight, as many as its health lets it have "
    "(coefficient {health:.2f}, by {health_by})",
    "max_in_flight": "insight {insight} has as many in flight as it may ({in_flight})",
    "pool": "the resource pool has no room for more of insight {insight} than {in_flight}",
}

_COST_WARNING = (
    "; its declared cost of {declared} worker-seconds counts as {counted} only, as its "
    "customer's agendas usually take far less: declare in cost_s about what one takes, or "
    "leave it out"
)

_DELAYED = frozenset({"waiting", "held"})
_CAUSES = {"retry": "the attempt before failed", "lost": "its puller fell silent"}


def explain(summary: Summary, answer: QueueDescribed | None) -> str:
    """Why an agenda waits, in one sentence for a person, with a warning of an absurd cost.

    Args:
        summary: What has been folded of the agenda.
        answer: What the scheduler says of it and its insight; None if it was not asked.
    """
    if summary.state is State.REFUSED:
        reasons = "; ".join(f"{one.field}: {one.message}" for one in summary.issues)
        return f"refused: {reasons}"
    if summary.state.is_terminal:
        has_reason = summary.message and summary.state is not State.SUCCEEDED
        said = f": {summary.message}" if has_reason else ""
        return f"it has ended: {summary.state.value}{said}"
    place = answer.agenda if answer else None
    held = _scheduler_view(place, answer, summary) if answer and place else ""
    warning = _cost_warning(place.overdeclared) if place and place.overdeclared else ""
    return (held or _beyond_the_queue(summary, answer)) + warning


def _cost_warning(cost: Overdeclared) -> str:
    return _COST_WARNING.format(
        declared=_figure(cost.declared_s), counted=_figure(cost.counts_as_s)
    )


def _figure(seconds: float) -> str:
    return f"{seconds:,.3f}".rstrip("0").rstrip(".")


def _beyond_the_queue(summary: Summary, answer: QueueDescribed | None) -> str:
    if summary.state is State.RUNNING:
        return f"it runs, attempt {summary.attempt}, on puller {summary.puller_id or 'unknown'}"
    return _in_transit(summary, answer)


def _scheduler_view(place: QueuedAgendaStatus, answer: QueueDescribed, summary: Summary) -> str:
    """What the scheduler knows better than the summary; empty if that is nothing."""
    if place.stopping:
        return f"it is to stop, for it is {place.stopping}: its puller was notified"
    if place.state in _DELAYED:
        return _delayed(place, summary)
    return _waiting(place, answer) if place.state == "ready" else ""


def _delayed(place: QueuedAgendaStatus, summary: Summary) -> str:
    if place.state == "held":
        if waits := _conditions(summary):
            return f"it waits for {waits}"
        return f"it is on hold, until someone releases it{_hold_reason(summary)}"
    until = place.until.isoformat(timespec="seconds") if place.until else "an instant"
    if place.why == "not_before":
        return f"it is not to start before {until}"
    if place.why == "not_yet":
        waits = summary.message or "an operation waits for something"
        return f"{waits}; attempt {place.attempt} looks again from {until} on"
    cause = _CAUSES[place.why or "retry"]
    said = f": {summary.message}" if summary.message else ""
    return f"{cause}, so attempt {place.attempt} starts from {until} on{said}"


def _conditions(summary: Summary) -> str:
    """What it waits for before its first attempt, as it was accepted; empty for nothing."""
    if summary.attempt > 1 or b'"wait_for"' not in summary.body:
        return ""
    try:
        agenda = parse_agenda(summary.body, is_accepted=True)
    except SubmissionError:
        return ""
    waits = () if agenda.hold else agenda.wait_for
    return ", ".join(f"{one.kind} {one.key}" for one in waits)


class _HeldBody(msgspec.Struct):
    hold_reason: str = ""


_HELD_BODY: Final = msgspec.json.Decoder(_HeldBody)


def _hold_reason(summary: Summary) -> str:
    """Why it was held when it came, if it was."""
    reason = _HELD_BODY.decode(summary.body).hold_reason if summary.body else ""
    return f"; it came on hold: {reason}" if reason else ""


def _in_transit(summary: Summary, answer: QueueDescribed | None) -> str:
    place = answer.agenda if answer else None
    if place is not None and place.state == "claimed":
        return "a puller has just claimed it"
    if answer is not None and place is not None and place.state == "emitted":
        return _emitted(place, answer)
    return (
        f"accepted for insight {summary.insight_id}; the scheduler does not hold it at this "
        "moment: it has just arrived, or has just moved on"
    )


def _waiting(place: QueuedAgendaStatus, answer: QueueDescribed) -> str:
    parts = [f"position {place.position:,} of {answer.ready:,} in insight {answer.insight_id}"]
    if place.rises_at is not None:
        rises_at = place.rises_at.isoformat(timespec="seconds")
        parts.append(f"{place.urgent_ahead:,} more urgent go first; it moves up at {rises_at}")
    if place.customer is not None:
        parts.append(_customer_share(place.customer))
    limit = _LIMITS.get(answer.limited_by)
    if limit is not None:
        facts = {name: getattr(answer, name) for name in ("in_flight", "health", "health_by")}
        said = answer.health_reason if answer.limited_by == "health" else ""
        reason = f": {said}" if said else ""
        parts.append(limit.format(insight=answer.insight_id, **facts) + reason)
    if place.eta_s is not None:
        parts.append(f"about {_duration(place.eta_s)} at the present rate")
    elif limit is None and not (place.customer and place.customer.held_by):
        parts.append(_NO_CLAIMS)
    return "; ".join(parts)


def _emitted(place: QueuedAgendaStatus, answer: QueueDescribed) -> str:
    text = f"next in line: one of {answer.lag:,} emitted agendas that pullers take"
    return f"{text}; {_NO_CLAIMS if place.eta_s is None else f'about {_duration(place.eta_s)}'}"


def _customer_share(customer: CustomerShare) -> str:
    held = _HELD.get(customer.held_by)
    if held is not None:
        return held.format(customer=customer.customer_id, in_flight=customer.in_flight)
    return f"customer {customer.customer_id} at {customer.share:.2f} of its share"


def _duration(seconds: float) -> str:
    if seconds < 10:  # noqa: PLR2004  # below, tenths matter to a reader
        return f"{seconds:.1f} s"
    if seconds < 120:  # noqa: PLR2004  # two minutes, as people say it
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
