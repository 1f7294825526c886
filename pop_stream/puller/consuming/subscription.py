"""The subscription to one insight: finds its topics, and runs a consumer of each."""

import asyncio
from collections.abc import Mapping, Set
from typing import Final, Protocol

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.hardening.cancellation import shield_until_answered
from pop_stream.kafka.topics import InsightSubscription, Topics
from pop_stream.model.definitions import GroupType
from pop_stream.model.errors import UnavailableError
from pop_stream.puller.claiming.pipeline import ClaimContext
from pop_stream.puller.consuming.insight_consumer import InsightConsumer
from pop_stream.puller.consuming.share_insight_consumer import ShareInsightConsumer
from pop_stream.settings import Settings

_TOPIC_POLL_S: Final = 0.5
_OTHER_KIND_POLL_S: Final = 10.0
_RETRY_S: Final = 1.0

_log = structlog.get_logger()


class _QueueConsumer(Protocol):
    async def consume(self, stop: asyncio.Event) -> None: ...


class _ConsumerFactory(Protocol):
    def __call__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> _QueueConsumer: ...


_CONSUMERS: Final[Mapping[GroupType, _ConsumerFactory]] = {
    "consumer": InsightConsumer,
    "share": ShareInsightConsumer,
}


async def run_subscription(
    settings: Settings, insight_id: str, claim_context: ClaimContext, stop: asyncio.Event
) -> None:
    """Take agendas of an insight until `stop`, as a member of its consumer or share group.

    Each kind of group has a topic of its own, which appears with the first agenda and is
    waited for: so a puller learns the kind without reading any definition. An insight that
    was redefined with the other kind has both topics, and both are read, the second from some
    ten seconds after it appears. After a fault of Kafka the consumer is started again.

    Raises:
        MissingClientError: If it is a share group, and its client is not installed.
    """
    names = Topics(settings.topic_prefix)
    missing = {names.insight(insight_id, one): one for one in _CONSUMERS}
    async with asyncio.TaskGroup() as feeds:
        is_first = True
        while missing and not stop.is_set():
            found = await _wait_for_topics(
                settings, insight_id, missing.keys(), stop, until_some=is_first
            )
            for kind in map(missing.pop, found):
                feed = _CONSUMERS[kind](
                    settings, names.insight_subscription(insight_id, kind), claim_context
                )
                feeds.create_task(_consume(feed, insight_id, stop))
            is_first = False
            await wait_until_set(stop, _OTHER_KIND_POLL_S)


async def _consume(feed: _QueueConsumer, insight_id: str, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await feed.consume(stop)
        except (KafkaError, OSError, UnavailableError) as error:
            _log.warning("consumer.interrupted", insight_id=insight_id, error=repr(error))
            await wait_until_set(stop, _RETRY_S)


async def _wait_for_topics(
    settings: Settings,
    insight_id: str,
    wanted: Set[str],
    stop: asyncio.Event,
    *,
    until_some: bool,
) -> Set[str]:
    """Those of the topics that exist, once there is one if `until_some`; none if stopped."""
    while not stop.is_set():
        probe = clients.consumer(settings, client_id=f"puller.{insight_id}", group_id=None)
        try:
            async with probe:
                while not stop.is_set():
                    # Only what exists is asked for by name: asking for another may create it.
                    existing: Set[str] = await shield_until_answered(probe.topics())
                    found = wanted & existing
                    if found or not until_some:
                        return found
                    await wait_until_set(stop, _TOPIC_POLL_S)
        except (KafkaError, OSError) as error:
            _log.warning("consumer.interrupted", insight_id=insight_id, error=repr(error))
            await wait_until_set(stop, _RETRY_S)
    return set()
