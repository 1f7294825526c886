"""Why an agenda waits, and what a queue is like, over HTTP."""

import asyncio
from typing import Any

import pytest
from api_fakes import AT, open_api, summary
from msgspec.structs import replace

from pop_stream.model.events.base import Overdeclared, RefusedIssue
from pop_stream.model.events.forecast import (
    CustomerForecast,
    QueueForecast,
    StartForecast,
)
from pop_stream.model.events.scheduling import (
    CustomerShare,
    EmissionLimit,
    QueuedAgendaStatus,
    QueueDescribed,
    QueueState,
)
from pop_stream.policy.lifecycle.explain import explain
from pop_stream.policy.lifecycle.states import State


def share(**changes: Any) -> CustomerShare:
    known: dict[str, Any] = {
        "customer_id": "acme",
        "chosen": 0,
        "ready": 300,
        "in_flight": 2,
        "weight": 1.0,
    }
    return CustomerShare(**known | changes)


def answer(
    place: QueuedAgendaStatus | None = None, limited_by: EmissionLimit = ""
) -> QueueDescribed:
    return QueueDescribed(
        insight_id="files",
        query_id="q",
        at=AT,
        algorithm="weighted_fair",
        ready=8120,
        delayed=3,
        held=4,
        lag=12,
        in_flight=20,
        slots=0,
        target=24,
        rate_per_s=5.35,
        customers=(share(),),
        agenda=place,
        limited_by=limited_by,
        health=0.25 if limited_by == "health" else None,
        health_by="disk" if limited_by == "health" else "",
        health_reason="the disk is slow" if limited_by == "health" else "",
    )


def ready(**changes: Any) -> QueuedAgendaStatus:
    known: dict[str, Any] = {
        "agenda_id": "a1",
        "state": "ready",
        "position": 214,
        "own_ahead": 53,
        "eta_s": 40.0,
        "customer": share(),
    }
    return QueuedAgendaStatus(**known | changes)


@pytest.mark.parametrize(
    ("state", "place", "expected"),
    [
        (
            State.READY,
            ready(),
            "position 214 of 8,120 in insight files; customer acme at 1.00 of its share; "
            "about 40 s at the present rate",
        ),
        (
            State.READY,
            ready(eta_s=None, customer=share(held_by="paused")),
            "position 214 of 8,120 in insight files; customer acme is paused",
        ),
        (
            State.READY,
            ready(eta_s=None, customer=share(held_by="max_in_flight")),
            "position 214 of 8,120 in insight files; "
            "customer acme has as many in flight as it may (2)",
        ),
        (
            State.READY,
            ready(eta_s=None),
            "position 214 of 8,120 in insight files; customer acme at 1.00 of its share; "
            "nothing is being claimed at present: are pullers running?",
        ),
        (
            State.READY,
            ready(eta_s=None, customer=share(held_by="rate")),
            "position 214 of 8,120 in insight files; customer acme is at its rate limit",
        ),
        (
            State.READY,
            ready(urgent_ahead=1_200, rises_at=AT),
            "position 214 of 8,120 in insight files; 1,200 more urgent go first; it moves up "
            f"at {AT.isoformat()}; customer acme at 1.00 of its share; "
            "about 40 s at the present rate",
        ),
        (
            State.READY,
            ready(customer=None),
            "position 214 of 8,120 in insight files; about 40 s at the present rate",
        ),
        (
            State.EMITTED,
            QueuedAgendaStatus(agenda_id="a1", state="emitted", eta_s=2.25),
            "next in line: one of 12 emitted agendas that pullers take; about 2.2 s",
        ),
        (
            State.EMITTED,
            QueuedAgendaStatus(agenda_id="a1", state="emitted"),
            "next in line: one of 12 emitted agendas that pullers take; "
            "nothing is being claimed at present: are pullers running?",
        ),
        (
            State.EMITTED,
            QueuedAgendaStatus(agenda_id="a1", state="claimed"),
            "a puller has just claimed it",
        ),
        (
            State.RUNNING,
            QueuedAgendaStatus(agenda_id="a1", state="claimed"),
            "it runs, attempt 1, on puller p1",
        ),
        (
            State.READY,
            QueuedAgendaStatus(agenda_id="a1", state="unknown"),
            "accepted for insight files; the scheduler does not hold it at this moment: "
            "it has just arrived, or has just moved on",
        ),
        (State.SUCCEEDED, None, "it has ended: succeeded"),
        (State.FAILED, None, "it has ended: failed: no luck"),
        (
            State.HELD,
            QueuedAgendaStatus(agenda_id="a1", state="held"),
            "it is on hold, until someone releases it",
        ),
        (
            State.WAITING,
            QueuedAgendaStatus(agenda_id="a1", state="waiting", until=AT, why="not_before"),
            f"it is not to start before {AT.isoformat()}",
        ),
        (
            State.WAITING,
            QueuedAgendaStatus(
                agenda_id="a1", state="waiting", attempt=2, until=AT, why="retry"
            ),
            f"the attempt before failed, so attempt 2 starts from {AT.isoformat()} on: no luck",
        ),
        (
            State.RUNNING,
            QueuedAgendaStatus(agenda_id="a1", state="waiting", attempt=3, why="lost"),
            "its puller fell silent, so attempt 3 starts from an instant on: no luck",
        ),
        (
            State.RUNNING,
            QueuedAgendaStatus(agenda_id="a1", state="claimed", stopping="cancelled"),
            "it is to stop, for it is cancelled: its puller was notified",
        ),
    ],
)
def test_words_fit_the_state(
    state: State, place: QueuedAgendaStatus | None, expected: str
) -> None:
    known = summary(state=state, puller_id="p1", message="no luck")
    assert explain(known, answer(place)) == expected


@pytest.mark.parametrize(
    ("limited_by", "words"),
    [
        ("max_in_flight", "insight files has as many in flight as it may (20)"),
        ("pool", "the resource pool has no room for more of insight files than 20"),
        ("paused", "insight files is paused"),
        (
            "health",
            "insight files has 20 in flight, as many as its health lets it have "
            "(coefficient 0.25, by disk): the disk is slow",
        ),
    ],
)
def test_an_insight_that_is_full_is_not_taken_for_one_without_pullers(
    limited_by: EmissionLimit, words: str
) -> None:
    known = summary(state=State.READY)
    text = explain(known, answer(ready(eta_s=None, customer=None), limited_by))
    assert text == f"position 214 of 8,120 in insight files; {words}"
    text = explain(known, answer(ready(customer=None), limited_by))
    assert text.endswith(f"{words}; about 40 s at the present rate")


def test_what_the_scheduler_was_not_asked_about_is_on_its_way() -> None:
    assert explain(summary(state=State.READY), None).startswith("accepted for insight files")


def test_a_wait_without_a_reason_is_shown_without_one() -> None:
    place = QueuedAgendaStatus(
        agenda_id="a1", state="waiting", attempt=2, until=AT, why="retry"
    )
    assert explain(summary(state=State.WAITING), answer(place)).endswith("on")


@pytest.mark.parametrize(("eta_s", "words"), [(0.4, "0.4 s"), (119, "119 s"), (600, "10 min")])
def test_spans_are_written_as_people_do(eta_s: float, words: str) -> None:
    text = explain(summary(state=State.READY), answer(ready(eta_s=eta_s)))
    assert text.endswith(f"about {words} at the present rate")


def test_a_refusal_says_what_was_wrong() -> None:
    issue = RefusedIssue(field="operations", value="[]", message="must not be empty")
    refused = summary(state=State.REFUSED, issues=(issue,))
    assert explain(refused, None) == "refused: operations: must not be empty"


async def test_why_gives_words_and_figures() -> None:
    async with open_api() as api:
        api.summaries.put(summary("a1", state=State.READY))
        api.questions.by_question["files", "a1"] = answer(ready())
        status, body = await api.get("/v1/agendas/a1/why")
    assert status == 200
    assert body["position"] == 214
    assert body["own_ahead"] == 53
    assert body["eta_s"] == 40.0
    assert body["customer"]["share"] == 1.0
    assert body["queue"]["ready"] == 8120
    assert body["why"].startswith("position 214 of 8,120")


@pytest.mark.parametrize("state", ["ready", "waiting", "claimed"])
def test_an_absurd_cost_is_shown_while_the_agenda_is_here(state: QueueState) -> None:
    place = ready(state=state, overdeclared=Overdeclared(1e7, 20.0))
    words = explain(summary("a1", state=State.READY), answer(place))
    assert "; its declared cost of 10,000,000 worker-seconds counts as 20 only, as " in words
    plain = explain(summary("a1", state=State.READY), answer(ready(state=state)))
    assert words.startswith(plain + ";")


async def test_why_has_the_figures_of_an_absurd_cost() -> None:
    async with open_api() as api:
        api.summaries.put(summary("a1", state=State.READY))
        place = ready(overdeclared=Overdeclared(1e7, 20.0))
        api.questions.by_question["files", "a1"] = answer(place)
        _, body = await api.get("/v1/agendas/a1/why")
        api.questions.by_question["files", "a1"] = answer(ready())
        _, usual = await api.get("/v1/agendas/a1/why")
    assert (body["declared_s"], body["counts_as_s"]) == (1e7, 20.0)
    assert (usual["declared_s"], usual["counts_as_s"]) == (None, None)


async def test_why_tells_of_the_more_urgent_and_of_what_limits_the_insight() -> None:
    place = ready(urgent_ahead=1_200, rises_at=AT)
    async with open_api() as api:
        api.summaries.put(summary("a1", state=State.READY))
        api.questions.by_question["files", "a1"] = answer(place, "pool")
        _, body = await api.get("/v1/agendas/a1/why")
        api.questions.by_question["files", "a1"] = answer(ready())
        _, plain = await api.get("/v1/agendas/a1/why")
    assert (body["urgent_ahead"], body["queue"]["limited_by"]) == (1_200, "pool")
    assert body["rises_at"] == AT.isoformat().replace("+00:00", "Z")
    assert (plain["urgent_ahead"], plain["rises_at"]) == (0, None)
    assert plain["queue"]["limited_by"] is None


async def test_why_tells_until_when_it_waits_and_that_it_is_to_stop() -> None:
    waits = QueuedAgendaStatus(
        agenda_id="a1", state="waiting", until=AT, why="retry", attempt=2
    )
    stops = QueuedAgendaStatus(agenda_id="a2", state="claimed", stopping="cancelled")
    async with open_api() as api:
        for place, state in ((waits, State.WAITING), (stops, State.RUNNING)):
            api.summaries.put(summary(place.agenda_id, state=state))
            api.questions.by_question["files", place.agenda_id] = answer(place)
        _, waiting = await api.get("/v1/agendas/a1/why")
        _, stopping = await api.get("/v1/agendas/a2/why")
    assert (waiting["until"], waiting["stopping"]) == (
        AT.isoformat().replace("+00:00", "Z"),
        None,
    )
    assert (stopping["until"], stopping["stopping"]) == (None, "cancelled")
    assert (waiting["queue"]["waiting"], waiting["queue"]["held"]) == (3, 4)


async def test_why_of_an_ended_agenda_asks_nobody() -> None:
    async with open_api() as api:
        api.summaries.put(summary("a1", state=State.SUCCEEDED))
        status, body = await api.get("/v1/agendas/a1/why")
    assert status == 200
    assert body["why"] == "it has ended: succeeded"
    assert body["queue"] is None


async def test_why_of_an_unknown_agenda_is_404() -> None:
    async with open_api() as api:
        status, _ = await api.get("/v1/agendas/nobody/why")
    assert status == 404


async def test_a_silent_scheduler_is_503() -> None:
    async with open_api() as api:
        status, body = await api.get("/v1/insights/files/queue")
    assert status == 503
    assert "scheduler" in body["detail"]


async def test_the_queue_of_an_insight() -> None:
    async with open_api() as api:
        api.questions.by_question["files", ""] = answer()
        status, body = await api.get("/v1/insights/files/queue")
    assert status == 200
    assert body["lag"] == 12
    assert body["customers"][0] == {
        "customer_id": "acme",
        "ready": 300,
        "in_flight": 2,
        "weight": 1.0,
        "share": 1.0,
        "wait_s": 0.0,
        "held_by": None,
        "delivered_s": 0.0,
    }


async def test_who_would_start_when_with_other_weights() -> None:
    now, then = StartForecast(next_s=1.0, last_s=9.0), StartForecast(next_s=0.5)
    one = CustomerForecast(
        customer_id="acme", ready=3, weight=1.0, new_weight=4.0, before=now, after=then
    )
    forecast = QueueForecast(rate_per_s=2.0, horizon_s=9.0, customers=(one,), others=1)
    path, asked = "/v1/insights/files/forecast", {"weights": {"acme": 4}}
    async with open_api() as api:
        api.questions.by_question["files", ""] = replace(answer(), forecast=forecast)
        status, body = await api.post(path, asked)
        assert (status, body["horizon_s"], body["other_customers"]) == (200, 9.0, 1)
        [acme] = body["customers"]
        assert (acme["before"]["last_s"], acme["after"]["next_s"]) == (9.0, 0.5)
        assert api.questions.asked_weights == [{"acme": 4.0}]
        api.questions.by_question["files", ""] = answer()
        status, _ = await api.post(path, asked)
        assert status == 503, "a scheduler of an earlier version"


@pytest.mark.parametrize("weights", [{}, {"acme": 0}, {"acme": "much"}, {"no id": 1}])
async def test_a_forecast_of_weights_that_are_none_is_refused(weights: Any) -> None:
    async with open_api() as api:
        status, body = await api.post("/v1/insights/files/forecast", {"weights": weights})
        assert (status, body["issues"][0]["field"].startswith("weights")) == (422, True)
        status, _ = await api.post("/v1/insights/none/forecast", {"weights": {"acme": 1}})
        assert status == 404


async def test_the_queue_of_an_unknown_insight_is_404() -> None:
    async with open_api() as api:
        answers = await asyncio.gather(
            api.get("/v1/insights/none/queue"), api.get(f"/v1/insights/{'x' * 500}/queue")
        )
    assert [status for status, _ in answers] == [404, 404]
