"""Submissions under an id that is known: the same again, something else, and whose it is."""

import asyncio
import json
from datetime import timedelta

import pytest
import pytest_asyncio
from api_fakes import agenda, open_api, summary
from deadlines import within
from fakes import ManualClock

from pop_stream.api.http.answers import with_timeout
from pop_stream.api.submissions import repeats
from pop_stream.model.errors import UnavailableError
from pop_stream.policy.ingress.admission import MAX_DIFFERENCES, differences
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

NOW = ManualClock().now()


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


def stored(api, **changes):
    body = agenda(id="a1", **changes)
    api.summaries.put(
        summary("a1", body=json.dumps(body).encode(), customer_id=body["customer_id"])
    )


@pytest.mark.parametrize("is_stored", [True, False])
async def test_the_same_again_gets_the_same_answer_and_is_published_once(api, is_stored):
    if is_stored:
        stored(api, title="nightly")
    answers = [await api.submit(agenda(id="a1", title="nightly")) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 202
    assert len(api.published) == (0 if is_stored else 1)


async def test_something_else_under_a_known_id_is_refused_with_the_differences(api):
    stored(api, title="nightly", params={"a": 1})
    status, answer = await api.submit(agenda(id="a1", title="weekly", params={"a": True}))
    assert (status, answer["code"]) == (409, "id_taken")
    assert [(one["field"], one["value"]) for one in answer["issues"]] == [
        ("params.a", "true"),
        ("title", "weekly"),
    ]
    assert "nightly" in answer["issues"][1]["message"]
    assert not api.published


async def test_of_anothers_agenda_nothing_but_its_id_is_shown(api):
    stored(api, customer_id="beta", title="secret plans")
    status, answer = await api.submit(agenda(id="a1"))
    assert status == 409
    assert [one["field"] for one in answer["issues"]] == ["id"]
    assert "beta" not in json.dumps(answer)
    assert "secret" not in json.dumps(answer)


async def test_of_a_list_each_stands_alone(api):
    stored(api)
    await api.submit(agenda(id="a2"))
    items = [agenda(id="a1"), agenda(id="a1b"), agenda(id="a2", title="other"), agenda()]
    status, answer = await api.submit(items)
    assert status == 202
    assert [one["status"] for one in answer["results"]] == [202, 202, 409, 202]
    assert (answer["accepted"], answer["refused"]) == (3, 1)
    assert [one["id"] for one in api.published] == ["a2", "a1b", answer["results"][3]["id"]]


async def test_what_was_refused_may_be_sent_again(api):
    api.summaries.put(Summary(agenda_id="a1", state=State.REFUSED, customer_id="acme"))
    assert (await api.submit(agenda(id="a1")))[0] == 202
    assert len(api.published) == 1


@pytest.mark.parametrize("later", [timedelta(0), timedelta(seconds=50)])
async def test_what_was_removed_may_be_sent_again_though_it_came_of_late(api, later):
    """By clocks that differ by as much; what is younger than all that was removed may not."""
    await api.submit(agenda(id="a1"))
    api.summaries.deleted_until = NOW - later
    assert (await api.submit(agenda(id="a1")))[0] == 202
    assert [one["id"] for one in api.published] == ["a1", "a1"]
    api.summaries.deleted_until = NOW - timedelta(minutes=2)
    for _ in range(2):
        assert (await api.submit(agenda(id="a1")))[0] == 202
    assert len(api.published) == 2


async def test_what_came_of_late_and_was_refused_may_be_sent_again(api):
    await api.submit(agenda(id="a1"))
    api.summaries.put(Summary(agenda_id="a1", state=State.REFUSED, customer_id="acme"))
    assert (await api.submit(agenda(id="a1", title="put right")))[0] == 202
    assert [one.get("title") for one in api.published] == [None, "put right"]


async def test_while_it_is_not_known_what_was_removed_what_came_of_late_is_known(
    api, monkeypatch
):
    async def away(_):
        raise UnavailableError

    await api.submit(agenda(id="a1"))
    monkeypatch.setattr(api.summaries, "reusable_ids", away)
    assert (await api.submit(agenda(id="a1", title="other")))[0] == 409


async def test_while_postgres_is_away_what_is_new_passes_and_what_came_of_late_is_known(api):
    await api.submit(agenda(id="a1"))
    api.summaries.is_away = True
    asked = len(api.summaries.asked)
    assert (await api.submit(agenda(id="a1", title="other")))[0] == 409
    for number in range(3):
        assert (await api.submit(agenda(id=f"b{number}")))[0] == 202
    assert len(api.summaries.asked) == asked + 1  # it is left alone for a moment


async def test_a_slow_postgres_is_waited_for(api, monkeypatch):
    """Who lost the answer in a crash asks again when everything is slow."""
    stored(api)
    ask = api.summaries.accepted_bodies

    async def slowly(agenda_ids):
        await asyncio.sleep(1.2)
        return await ask(agenda_ids)

    monkeypatch.setattr(api.summaries, "accepted_bodies", slowly)
    assert (await api.submit(agenda(id="a1")))[0] == 202
    assert not api.published


async def test_a_postgres_that_says_nothing_is_asked_by_one_at_a_time_and_seen_again(
    api, monkeypatch
):
    stored(api, title="nightly")
    ask, asked, answers = api.summaries.accepted_bodies, [], asyncio.Event()

    async def in_vain(agenda_ids):
        asked.append(agenda_ids)
        await answers.wait()
        return await ask(agenda_ids)

    monkeypatch.setattr(api.summaries, "accepted_bodies", in_vain)
    monkeypatch.setattr(repeats, "_LOOKUP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(repeats, "_RETRY_AFTER_S", 0.0)
    assert (await api.submit(agenda(id="b0")))[0] == 202
    monkeypatch.setattr(repeats, "_LOOKUP_TIMEOUT_S", 60.0)
    monkeypatch.setattr(repeats, "_PROBE_TIMEOUT_S", 0.05)
    async with within(30):
        for number in range(1, 4):
            assert (await api.submit(agenda(id=f"b{number}")))[0] == 202
        assert [tuple(ids) for ids in asked] == [("b0",), ("b1",)]
        answers.set()
        while (await api.submit(agenda(id="a1", title="weekly")))[0] != 409:
            pass


async def test_what_takes_too_long_is_not_waited_for_until_it_has_ended():
    ended = asyncio.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()

    async with within(30):
        with pytest.raises(UnavailableError, match=r"no answer within 0\.01 s"):
            await with_timeout(hang(), within_s=0.01)
    ended.set()


async def test_what_kafka_did_not_take_is_not_remembered(api):
    api.publisher.failures.append(UnavailableError())
    assert (await api.submit(agenda(id="a1")))[0] == 503
    assert (await api.submit(agenda(id="a1", title="other")))[0] == 202


def test_the_order_of_fields_makes_no_difference():
    assert differences(b'{"a": 1, "b": [1, {"c": null}]}', b'{"b":[1,{"c":null}],"a":1}') == ()


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b"]),
        ({"a": 1}, {}, ["a"]),
        ({}, {"a": 1}, ["a"]),
        ({}, {str(n): n + 1 for n in range(9)}, [str(n) for n in range(MAX_DIFFERENCES)]),
    ],
)
def test_differences_are_named_by_field(before, after, fields):
    found = differences(json.dumps(before).encode(), json.dumps(after).encode())
    assert [one.field for one in found] == fields
