"""How far the pullers of insights are behind, asked of the broker."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from pop_stream.bus.topics import Topics
from pop_stream.core.ids import InsightId

_log = structlog.get_logger()


class KafkaLagProbe:
    """The port `LagProbe`: one request for all end offsets, one per insight's group.

    Args:
        topics: Names of topics and groups.
        admin: Started and closed by the caller.
        consumer: Without a group; started and stopped by the caller.
    """

    def __init__(
        self, topics: Topics, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer
    ) -> None:
        self._topics = topics
        self._admin = admin
        self._consumer = consumer

    async def lags(self, insights: Sequence[InsightId]) -> Mapping[InsightId, int]:
        """See the port. An insight whose group never committed has no known lag."""
        try:
            committed = await asyncio.gather(*(self._committed(one) for one in insights))
            asked = [tp for offsets in committed for tp in offsets]
            ends = await self._consumer.end_offsets(asked) if asked else {}
        except (KafkaError, TimeoutError) as error:
            _log.info("lag.unknown", error=repr(error))
            return {}
        return {
            insight_id: sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
            for insight_id, offsets in zip(insights, committed, strict=True)
            if offsets
        }

    async def _committed(self, insight_id: InsightId) -> dict[TopicPartition, int]:
        """Committed offsets; a partition without one counts from 0 if another has one."""
        topic = self._topics.insight(insight_id)
        group = self._topics.puller_group(insight_id)
        found = await self._admin.list_consumer_group_offsets(group)
        offsets = {tp: at.offset for tp, at in found.items() if tp.topic == topic}
        if all(offset < 0 for offset in offsets.values()):
            return {}
        partitions = self._consumer.partitions_for_topic(topic) or set()
        everywhere = {TopicPartition(topic, partition): 0 for partition in partitions}
        return everywhere | {tp: max(0, offset) for tp, offset in offsets.items()}
