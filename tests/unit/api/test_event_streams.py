"""Event streams: the present at once, every change after, and an end."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio
from aiohttp import ClientTimeout
from api_fakes import QUICK, open_api, summary
from deadlines import within
from event_chunks import chunk
from msgspec import Raw

from pop_stream.model.events.base import OperationProgress
from pop_stream.model.identity import Principal, Role
from pop_stream.policy.lifecycle.states import State


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


def follow(api, path, **headers):
    return api.client.get(path, headers=headers, timeout=ClientTimeout(total=20))


async def event(response):
    lines = (await chunk(response)).split("\n")
    answer = dict(line.split(": ", 1) for line in lines)
    assert len(answer) == len(lines) == 3
    return answer["id"], answer["event"], json.loads(answer["data"])


async def streams_open(api):
    async with api.client.get("/metrics") as response:
        return "\nevent_streams 0.0\n" not in await response.text()


async def until_nobody_watches(api):
    async with within(10):
        while await streams_open(api):
            pass


def done(agenda_id="a1", **changes):
    return summary(agenda_id, state=State.SUCCEEDED, operations={}, **changes)


async def test_the_present_state_comes_first_and_equals_the_read(api):
    api.summaries.put(summary("a1"))
    _, read = await api.get("/v1/agendas/a1/progress")
    async with follow(api, "/v1/agendas/a1/events") as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        assert "X-Correlation-Id" in response.headers
        assert await event(response) == ("1", "progress", read)


async def test_every_change_follows_until_the_agenda_has_ended(api):
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        api.summaries.put(summary("a1", message="half way"))
        number, _, body = await event(response)
        assert (number, body["message"]) == ("2", "half way")
        api.summaries.put(done())
        number, _, body = await event(response)
        assert (number, body["state"], body["percent"]) == ("3", "succeeded", 100.0)
        assert await response.content.read() == b""


async def test_changes_between_two_looks_are_sent_as_one(api):
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        for percent in range(100):
            api.summaries.put(summary("a1", message=str(percent)))
        number, _, body = await event(response)
        assert (number, body["message"]) == ("101", "99")


async def test_an_ended_agenda_is_sent_once(api):
    api.summaries.put(done())
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        assert await response.content.read() == b""


async def test_a_browser_that_comes_back_after_the_end_is_answered_to_stay_away(api):
    api.summaries.put(done())
    headers = {"Last-Event-ID": "1"}
    async with follow(api, "/v1/agendas/a1/events", **headers) as response:
        assert (response.status, await response.read()) == (204, b"")


async def test_a_browser_that_missed_the_end_is_sent_it(api):
    api.summaries.put(summary("a1"))
    api.summaries.put(done())
    headers = {"Last-Event-ID": "1"}
    async with follow(api, "/v1/agendas/a1/events", **headers) as response:
        assert (await event(response))[0] == "2"


async def test_a_link_goes_on_after_all_its_agendas_ended(api):
    api.summaries.put(done(link_id="l1"))
    _, read = await api.get("/v1/links/l1/summary")
    async with follow(api, "/v1/links/l1/events") as response:
        assert await event(response) == ("1", "summary", read)
        api.summaries.put(summary("a2", link_id="l1"))
        number, _, body = await event(response)
        assert (number, body["state"], body["total"]) == ("2", "running", 2)


@pytest.mark.parametrize("path", ["/v1/agendas/none/events", "/v1/links/none/events"])
async def test_what_does_not_appear_is_404(api, path):
    status, body = await api.get(path)
    assert (status, body["code"]) == (404, "not_found")


async def test_what_appears_in_time_is_followed():
    async with open_api(timing=replace(QUICK, appears_within=timedelta(seconds=10))) as api:
        opening = asyncio.create_task(api.client.get("/v1/agendas/a1/events"))
        while not api.summaries.asked:
            await asyncio.wait({opening}, timeout=0.005)
        assert not opening.done()
        api.summaries.put(done())
        async with await opening as response:
            assert (await event(response))[2]["state"] == "succeeded"


async def test_a_stream_cannot_be_opened_while_the_database_is_away(api):
    api.summaries.is_away = True
    status, body = await api.get("/v1/agendas/a1/events")
    assert (status, body["code"]) == (503, "unavailable")


async def test_a_database_that_hangs_is_not_taken_for_an_unknown_agenda(api, monkeypatch):
    async def hang(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(api.summaries, "agenda_versions", hang)
    status, body = await api.get("/v1/agendas/a1/events")
    assert (status, body["code"]) == (503, "unavailable")


async def test_an_open_stream_outlives_the_database(api):
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        api.summaries.is_away = True
        asked = len(api.summaries.asked)
        while len(api.summaries.asked) < asked + 3:
            await api.get("/healthz")
        api.summaries.is_away = False
        api.summaries.put(done())
        assert (await event(response))[2]["state"] == "succeeded"


async def test_a_fault_in_one_look_does_not_blind_the_streams(api):
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        api.summaries.fault = ZeroDivisionError()
        asked = len(api.summaries.asked)
        while len(api.summaries.asked) < asked + 2:
            await api.get("/healthz")
        api.summaries.fault = None
        api.summaries.put(done())
        assert (await event(response))[2]["state"] == "succeeded"


async def test_a_comment_keeps_a_silent_stream_alive():
    async with open_api(timing=replace(QUICK, heartbeat=timedelta(milliseconds=10))) as api:
        api.summaries.put(summary("a1"))
        async with follow(api, "/v1/agendas/a1/events") as response:
            await event(response)
            assert [await chunk(response) for _ in range(3)] == [":"] * 3


async def test_all_that_is_watched_is_asked_for_at_once(api):
    for agenda_id in ("a1", "a2"):
        api.summaries.put(summary(agenda_id))
    one = follow(api, "/v1/agendas/a1/events")
    other = follow(api, "/v1/agendas/a2/events")
    async with one as first, other as second:
        await event(first)
        await event(second)
        api.summaries.asked.clear()
        while ("agenda_versions", "a1", "a2") not in api.summaries.asked:
            await api.get("/healthz")
        assert {question[0] for question in api.summaries.asked} == {"agenda_versions"}


async def test_two_who_watch_the_same_cost_one_read(api):
    api.summaries.put(summary("a1"))
    one, other = (follow(api, "/v1/agendas/a1/events") for _ in range(2))
    async with one as first, other as second:
        await event(first)
        await event(second)
        assert api.summaries.asked.count(("agenda", "a1")) == 1


async def test_a_client_that_leaves_frees_everything(api):
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
    await until_nobody_watches(api)
    api.summaries.asked.clear()
    for _ in range(20):
        await api.get("/healthz")
    assert not api.summaries.asked


async def test_a_client_that_takes_nothing_is_dropped():
    async with open_api(timing=replace(QUICK, slow_after=timedelta(milliseconds=50))) as api:
        result = Raw(b'"%b"' % (b"x" * 1_000_000))
        operations = {"fetch": OperationProgress(name="fetch", state="running", result=result)}
        large = summary("a1", operations=operations)
        api.summaries.put(large)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", api.client.port, limit=1_000
        )
        writer.write(b"GET /v1/agendas/a1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        async with within(10):
            while await streams_open(api):
                api.summaries.put(large)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_line_break_in_a_result_does_not_break_the_event(api):
    result = Raw(b'{"a":\r\n\n[1,\n2]}')
    operations = {"fetch": OperationProgress(name="fetch", state="succeeded", result=result)}
    api.summaries.put(summary("a1", operations=operations))
    async with follow(api, "/v1/agendas/a1/events") as response:
        _, _, body = await event(response)
        assert body["operations"][0]["result"] == {"a": [1, 2]}


async def test_more_streams_than_are_borne_are_503(api, monkeypatch):
    monkeypatch.setattr("pop_stream.api.agendas.streams._MAX_STREAMS", 1)
    api.summaries.put(summary("a1"))
    async with follow(api, "/v1/agendas/a1/events") as response:
        await event(response)
        status, body = await api.get("/v1/agendas/a1/events")
        assert (status, body["code"]) == (503, "busy")


class Acme:
    async def identify(self, authorization):
        return Principal("key:1", None if authorization else "acme", frozenset({Role.READ}))


async def test_one_customers_streams_keep_no_other_out():
    async with open_api(authenticator=Acme(), max_streams=1) as api:
        api.summaries.put(summary("a1"))
        for _ in range(2):
            async with follow(api, "/v1/agendas/a1/events") as response:
                await event(response)
                status, body = await api.get("/v1/agendas/a1/events")
                assert (status, body["code"]) == (429, "rate_limit_reached")
                operator = {"Authorization": "Bearer op"}
                async with api.client.get("/v1/agendas/a1/events", headers=operator) as other:
                    assert other.status == 200
