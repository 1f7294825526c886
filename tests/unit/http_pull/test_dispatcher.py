"""What the dispatcher of agendas over HTTP does between a claim and its worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
import pytest
from deadlines import within
from fakes import ManualClock, MemoryPublisher
from puller_fakes import AT, emitted

from pop_stream.http_pull.dispatcher import LINGER_S, Dispatcher, _DemandSlots, _InsightDispatch
from pop_stream.model.events.codec import decode_poll_demand, encode
from pop_stream.model.events.pull import DeliveryReturned, PollWanted
from pop_stream.model.ids import HTTP_PULLER
from pop_stream.policy.http_pull import PollDemand
from pop_stream.settings import Settings

WITHIN_S = 10


class Record:
    topic, partition, offset, key, headers = "pop.insight.media", 0, 0, b"a1", ()

    def __init__(self, value: bytes) -> None:
        self.value = value


@pytest.fixture
async def dispatcher(
    publisher: MemoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Dispatcher]:
    """Running, and nobody asks it for anything."""
    monkeypatch.setattr(Dispatcher, "_consume", lambda *_: asyncio.Event().wait())
    dispatcher = Dispatcher(Settings(), publisher, ManualClock(AT))
    running = asyncio.create_task(dispatcher.run())
    yield dispatcher
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.fixture
def publisher() -> MemoryPublisher:
    return MemoryPublisher(partition_count=1)


def heartbeats(publisher: MemoryPublisher) -> list[dict[str, Any]]:
    reported = [json.loads(one.value or b"") for one in publisher.on("pop.agenda-events")]
    events = [one for some in reported for one in (some if isinstance(some, list) else [some])]
    return [one for one in events if one["type"] == "agenda.heartbeat"]


async def until(seen: Callable[[], Any]) -> None:
    async with within(WITHIN_S):
        while not seen():  # noqa: ASYNC110  # the publisher tells nobody
            await asyncio.sleep(0.01)


async def test_lease_of_what_waits_for_its_commit_is_renewed_until_it_is_handed_out(
    dispatcher, publisher
):
    record = Record(encode(emitted(attempt=2, lease_ms=300)))
    claimed = await dispatcher._claimer.claim([record])
    await until(lambda: len(heartbeats(publisher)) > 1)
    renewed = heartbeats(publisher)[0]
    assert (renewed["agenda_id"], renewed["attempt"]) == ("a1", 2)
    assert renewed["puller_id"] == HTTP_PULLER
    dispatcher._claimer.release(claimed.attempts)
    assert not [*dispatcher._claimer]


# ---- what a closed dispatch has left ----


def returns(publisher: MemoryPublisher) -> list[str]:
    reported = [decode_poll_demand(one.value or b"") for one in publisher.on("pop.poll-demand")]
    return [one.emitted.agenda_id for one in reported if isinstance(one, DeliveryReturned)]


def dispatch_of(dispatcher: Dispatcher) -> _InsightDispatch:
    """An open one, of which nobody wants anything."""
    demand = PollDemand("d1")
    dispatch = dispatcher._dispatches["media"] = _InsightDispatch(demand, _DemandSlots(demand))
    return dispatch


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_what_a_closed_dispatch_has_left_goes_to_the_next_dispatcher_at_once(
    dispatcher, publisher, comes
):
    dispatch = dispatch_of(dispatcher)
    if comes == "before":
        dispatcher.start(dispatch, emitted(lease_ms=60_000))
    dispatcher.close_all()
    if comes == "after":
        dispatcher.start(dispatch, emitted(lease_ms=60_000))
    now_s = monotonic()
    dispatcher._expire(now_s + 10)
    dispatcher.orphaned.rebalance_ended(now_s)
    dispatcher._expire(now_s + 1)
    assert returns(publisher) == [], "not all may read it yet"
    dispatcher._expire(now_s + 3)
    await until(lambda: returns(publisher))
    dispatcher._expire(now_s + 6)
    await asyncio.sleep(0)
    assert returns(publisher) == ["a1"]
    assert not publisher.on("pop.deliveries")


async def test_what_may_have_lost_its_lease_meanwhile_is_left_to_that(dispatcher, publisher):
    dispatch = dispatch_of(dispatcher)
    dispatcher.start(dispatch, emitted(lease_ms=2_000))
    dispatcher.close_all()
    dispatcher.orphaned.rebalance_ended(monotonic())
    dispatcher._expire(monotonic() + 10)
    for _ in range(10):
        await asyncio.sleep(0)
    assert returns(publisher) == []


async def test_a_dispatch_stays_open_for_what_was_returned_to_it(dispatcher):
    dispatch = dispatch_of(dispatcher)
    dispatcher.start(dispatch, emitted(lease_ms=60_000))
    now_s = monotonic()
    dispatcher._expire(now_s + LINGER_S)
    assert not dispatch.stop.is_set()
    dispatcher._expire(now_s + 31)
    assert dispatch.stop.is_set()


async def test_nothing_is_claimed_for_callers_while_much_is_not_published_yet(
    dispatcher: Dispatcher, publisher: MemoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few agendas that is: they are counted by their bytes."""
    answers, contexts = asyncio.Event(), list[Any]()
    publish = publisher.publish

    async def slow(records: Any) -> Any:
        await answers.wait()
        return await publish(records)

    async def run_subscription(_: Any, __: str, context: Any, stop: asyncio.Event) -> None:
        contexts.append(context)
        await stop.wait()

    monkeypatch.setattr(publisher, "publish", slow)
    monkeypatch.setattr("pop_stream.http_pull.dispatcher.run_subscription", run_subscription)
    async with asyncio.TaskGroup() as feeds:
        dispatch = dispatcher._open("media", feeds)
        await until(lambda: contexts)
        large = emitted(agenda=msgspec.Raw(b'"' + bytes(900_000) + b'"'))
        dispatch.demand.update(
            PollWanted(insight_id="media", api_id="x", wanted=100), monotonic()
        )
        for _ in range(37):
            dispatcher._deliver(dispatch, large)
            assert not contexts[0].reporter.is_full
        dispatcher._deliver(dispatch, large)
        assert contexts[0].reporter.is_full
        answers.set()
        await until(lambda: not contexts[0].reporter.is_full)
        dispatch.stop.set()
    assert len(publisher.on("pop.deliveries")) == 38
