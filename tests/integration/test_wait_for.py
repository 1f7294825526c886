"""Agendas wait for others, for links, signals and instants, and are released once."""

from datetime import timedelta

import pytest_asyncio
from one_process import one_process

from pop_stream.clock import WallClock
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.puller import FinalError, Handlers

MEDIA = Insight(id="media", mappers=Mappers(operation_types=("note", "break")), max_attempts=1)


def handlers():
    found = Handlers()

    @found.handler("note")
    async def note(operation):
        return operation.payload

    @found.handler("break")
    async def broken(operation):
        msg = "broken"
        raise FinalError(msg)

    return found


@pytest_asyncio.fixture
async def system(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA], handlers()) as opened:
        yield opened


NOTE = {"name": "n", "type": "note"}


async def test_it_goes_once_all_has_come_in_whatever_order(system):
    soon = (WallClock().now() + timedelta(seconds=1)).isoformat()
    wait_for = [{"agenda": "first"}, {"link": "night"}, {"signal": "go"}, {"at": soon}]
    await system.submit("last", NOTE, wait_for=wait_for, link_id="night")
    await system.state("last", "held")
    why = await system.until("/v1/agendas/last/why", lambda one: "waits for" in one["why"])
    assert "agenda first" in why["why"]
    await system.post("/v1/signals/go", {"customer_id": "acme"}, status=200)
    await system.submit("first", NOTE)
    await system.state("first", "succeeded")
    await system.submit("other", {"name": "n", "type": "break"}, link_id="night")
    await system.state("other", "failed")
    assert (await system.state("last", "succeeded", "failed"))["attempt"] == 1


async def test_what_has_come_before_counts(system):
    await system.submit("first", NOTE)
    await system.state("first", "succeeded")
    await system.submit("last", NOTE, wait_for=[{"agenda": "first", "ended": "succeeded"}])
    await system.state("last", "succeeded")


async def test_an_end_that_is_none_of_those_wanted_does_not_count(system):
    await system.submit("first", {"name": "n", "type": "break"})
    await system.state("first", "failed")
    wait_for = [{"agenda": "first", "ended": "succeeded"}]
    await system.submit("last", NOTE, wait_for=wait_for, wait_within_s=2)
    ended = await system.state("last", "failed", "succeeded")
    assert ended["state"] == "failed"
    assert "in vain for agenda first" in ended["message"]


async def test_it_may_go_on_after_the_time_out(system):
    wait_for = [{"signal": "never"}]
    await system.submit("last", NOTE, wait_for=wait_for, wait_within_s=1, on_timeout="go_on")
    await system.state("last", "succeeded")


async def test_a_person_may_release_or_cancel_it(system):
    await system.submit("a1", NOTE, wait_for=[{"signal": "never"}])
    await system.submit("a2", NOTE, wait_for=[{"signal": "never"}])
    await system.state("a1", "held")
    await system.state("a2", "held")
    await system.post("/v1/agendas/a1/release", {})
    await system.post("/v1/agendas/a2/cancel", {})
    await system.state("a1", "succeeded")
    await system.state("a2", "cancelled")


async def test_what_cannot_be_waited_for_is_refused(system):
    for wrong, field in (
        ({"wait_for": [{}]}, "wait_for[0]"),
        ({"wait_for": [{"signal": "a", "link": "b"}]}, "wait_for[0]"),
        ({"wait_for": [{"signal": "a", "ended": "any"}], "hold": True}, "hold"),
        ({"wait_for": [{"agenda": "a1"}]}, "wait_for[0].agenda"),
        ({"wait_for": [{"signal": "a"}] * 33}, "wait_for"),
        ({"on_timeout": "go_on"}, "on_timeout"),
    ):
        body = {"id": "a1", "customer_id": "acme", "operations": [NOTE], **wrong}
        status, answer = await system.call("POST", "/v1/agendas", json=[body])
        assert status == 422, wrong
        assert answer["results"][0]["issues"][0]["field"] == field
