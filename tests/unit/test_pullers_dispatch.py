"""What the dispatcher of agendas over HTTP does between a claim and its worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from fakes import ManualClock, MemoryPublisher
from pullers_fakes import AT, emitted

from pop_stream.core.events import encode
from pop_stream.core.values.ids import HTTP_PULLER
from pop_stream.pullers.dispatch import Dispatcher
from pop_stream.settings import Settings

WITHIN_S = 10


class Record:
    topic, partition, offset, key = "pop.insight.media", 0, 0, b"a1"

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


def renewals(publisher: MemoryPublisher) -> list[dict[str, Any]]:
    told = [json.loads(one.value or b"") for one in publisher.on("pop.agenda-events")]
    events = [one for some in told for one in (some if isinstance(some, list) else [some])]
    return [one for one in events if one["type"] == "agenda.renewed"]


async def until(seen: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not seen():  # noqa: ASYNC110  # the publisher tells nobody
            await asyncio.sleep(0.01)


async def test_lease_of_what_waits_for_its_commit_is_renewed_until_it_is_handed_out(
    dispatcher, publisher
):
    record = Record(encode(emitted(attempt=2, lease_ms=300)))
    claimed = await dispatcher._claimer.claim([record])
    await until(lambda: len(renewals(publisher)) > 1)
    renewed = renewals(publisher)[0]
    assert (renewed["agenda_id"], renewed["attempt"]) == ("a1", 2)
    assert renewed["puller_id"] == HTTP_PULLER
    dispatcher._claimer.let_go(claimed)
    assert not [*dispatcher._claimer]
