"""How far the pullers of insights are behind, asked of the brokers in few requests."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from pop_stream.bus.offset_fetch import ManyOffsetsRequest
from pop_stream.bus.topics import Topics
from pop_stream.core.ids import InsightId

ANSWER_WITHIN_S: Final = 5.0
"""A look at the lag that takes longer is given up; the next one starts afresh."""

_log = structlog.get_logger()


class KafkaLagProbe:
    """The port `LagProbe`: a request per broker for the offsets committed, one for the ends.

    Who coordinates a group is asked once per group, and again after it moved.

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
        self._coordinators: dict[str, int] = {}
        self._partitions: dict[str, int] = {}

    async def lags(self, insights: Sequence[InsightId]) -> Mapping[InsightId, int]:
        """See the port. An insight whose group never committed has no known lag."""
        by_group = {self._topics.puller_group(one): one for one in insights}
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._count_partitions(insights)
                committed = await self._committed([*by_group])
                wanted = {
                    by_group[group]: self._everywhere(by_group[group], offsets)
                    for group, offsets in committed.items()
                }
                asked = [tp for offsets in wanted.values() for tp in offsets]
                ends = await self._consumer.end_offsets(asked) if asked else {}
        except (KafkaError, TimeoutError) as error:
            _log.info("lag.unknown", error=repr(error))
            return {}
        return {
            insight_id: sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
            for insight_id, offsets in wanted.items()
            if offsets
        }

    async def _count_partitions(self, insights: Sequence[InsightId]) -> None:
        new = {self._topics.insight(one) for one in insights} - self._partitions.keys()
        for described in await self._admin.describe_topics(sorted(new)) if new else ():
            if described["partitions"]:
                self._partitions[described["topic"]] = len(described["partitions"])

    async def _committed(self, groups: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """The topics, as the protocol has them, of every group that answered."""
        by_coordinator: dict[int, list[str]] = {}
        for group in groups:
            if group not in self._coordinators:
                self._coordinators[group] = await self._admin.find_coordinator(group)
            by_coordinator.setdefault(self._coordinators[group], []).append(group)
        responses = await asyncio.gather(
            *(
                self._admin._send_request_to_node(node, ManyOffsetsRequest(some))  # noqa: SLF001
                for node, some in by_coordinator.items()
            )
        )
        committed: dict[str, Sequence[Any]] = {}
        for response in responses:
            for group, found, code, _ in response.groups:
                if code:
                    self._coordinators.pop(group, None)
                else:
                    committed[group] = found
        return committed

    def _everywhere(
        self, insight_id: InsightId, found: Sequence[Any]
    ) -> Mapping[TopicPartition, int]:
        """Committed offsets; a partition without one counts from 0 if another has one."""
        topic = self._topics.insight(insight_id)
        offsets = {
            TopicPartition(topic, partition): offset
            for name, partitions, _ in found
            if name == topic
            for partition, offset, _, _, code, _ in partitions
            if not code and offset >= 0
        }
        if not offsets:
            return {}
        everywhere = range(self._partitions.get(topic, 0))
        return {TopicPartition(topic, partition): 0 for partition in everywhere} | offsets
