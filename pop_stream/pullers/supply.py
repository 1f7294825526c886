"""Finds out which kind of group serves an insight, and reads as a member of that."""

import asyncio
from collections.abc import Set
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.clock import is_set_within
from pop_stream.pullers.feed import InsightFeed
from pop_stream.pullers.pipeline import Intake
from pop_stream.pullers.share_feed import ShareFeed
from pop_stream.settings import Settings

_TOPIC_EVERY_S: Final = 0.5
_RETRY_S: Final = 1.0

_log = structlog.get_logger()


async def supply(
    settings: Settings, insight_id: str, intake: Intake, stop: asyncio.Event
) -> None:
    """Take agendas of an insight until `stop`, as a member of its consumer or share group.

    Each kind has a topic of its own, which appears with the first agenda. So a puller need not
    read all definitions to know. Of an insight that was defined anew with the other kind
    both are there, and both are read.

    Raises:
        MissingClientError: If it is a share group, and its client is not installed.
    """
    names = Topics(settings.topic_prefix)
    found = await _found(settings, insight_id, stop)
    async with asyncio.TaskGroup() as feeds:
        if names.insight(insight_id) in found:
            feeds.create_task(InsightFeed(settings, insight_id, intake).run(stop))
        if names.insight(insight_id, "share") in found:
            feeds.create_task(ShareFeed(settings, insight_id, intake).run(stop))


async def _found(settings: Settings, insight_id: str, stop: asyncio.Event) -> Set[str]:
    """The insight's topics, once there is one; none if stopped before."""
    names = Topics(settings.topic_prefix)
    wanted = {names.insight(insight_id), names.insight(insight_id, "share")}
    while not stop.is_set():
        looking = clients.consumer(settings, client_id=f"puller.{insight_id}", group_id=None)
        try:
            async with clients.started(looking):
                while not stop.is_set():
                    # Only what exists is asked for by name: asking for another may create it.
                    there: Set[str] = await clients.undisturbed(looking.topics())
                    if found := wanted & there:
                        return found
                    await is_set_within(stop, _TOPIC_EVERY_S)
        except (KafkaError, OSError) as error:
            _log.warning("feed.interrupted", insight_id=insight_id, error=repr(error))
            await is_set_within(stop, _RETRY_S)
    return set()
