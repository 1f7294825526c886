"""How far pullers and the relay are behind, asked of the brokers in few requests."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from time import monotonic
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from pop_stream.kafka import share_consumer
from pop_stream.kafka.group_members import count_members
from pop_stream.kafka.hardening.internals import client_of
from pop_stream.kafka.protocol import MultiGroupOffsetFetchRequest
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import GroupType
from pop_stream.model.ids import InsightId
from pop_stream.ports.lag import GroupOffsets, LagSnapshot
from pop_stream.ports.records import TopicPartition

LAG_TIMEOUT_S: Final = 5.0
"""A look at the lag that takes longer is given up; the next one starts afresh."""

_BEYOND_ALL: Final = 2**62

_LOG_START_INTERVAL_S: Final = 5.0

_log = structlog.get_logger()


class KafkaLagProbe:
    """The port `LagProbe`: a request per broker for the offsets committed, one for the ends.

    What is removed from a topic's start, by hand or for its age, is as good as read: nobody
    will read it, or commit past it before there is more to read. Where topics start is asked
    every few seconds.

    Who coordinates a group is asked once per group, and again after a look that failed or a
    group that moved: the broker may be gone for good.

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
        self._log_starts: Mapping[TopicPartition, int] = {}
        self._log_starts_at: float | None = None

    async def fetch_lag(
        self,
        insights: Sequence[InsightId],
        *,
        shared: Sequence[InsightId] = (),
        relay: bool = False,
    ) -> LagSnapshot:
        """See the port. An insight whose group never committed has no known lag."""
        by_group = {self._topics.puller_group(one): one for one in insights}
        by_share_group = {self._topics.puller_group(one, "share"): one for one in shared}
        events, relay_group = self._topics.agenda_events, self._topics.group("relay")
        try:
            async with asyncio.timeout(LAG_TIMEOUT_S):
                names = {*by_group, *by_share_group}  # topics and groups are named alike
                await self._count_partitions(names | ({events} if relay else set()))
                found = await self._committed([*by_group, *([relay_group] if relay else [])])
                starts = await self._fetch_share_starts([*by_share_group])
                firsts = await self._fetch_log_starts([*by_group])
                wanted = {
                    one: self._with_all_partitions(
                        topic, _later(firsts[topic], _offsets(topic, found.get(topic, ())))
                    )
                    for topic, one in by_group.items()
                } | {
                    one: self._with_all_partitions(topic, starts.get(topic, {}))
                    for topic, one in by_share_group.items()
                }
                told = [TopicPartition(events, n) for n in self._numbers(events) if relay]
                asked = [tp for offsets in wanted.values() for tp in offsets]
                ends = await self._ends([*asked, *told])
        except (KafkaError, TimeoutError) as error:
            self._coordinators.clear()
            _log.info("lag.unknown", error=repr(error))
            return LagSnapshot()
        lags = {
            one: [max(0, ends[tp] - offsets[tp]) for tp in sorted(offsets)]
            for one, offsets in wanted.items()
            if offsets
        }
        if relay_group not in found:
            return LagSnapshot(lags)
        relay_offsets = _offsets(events, found[relay_group])
        return LagSnapshot(
            lags,
            end_offsets={tp.partition: ends[tp] for tp in told},
            relay_offsets={tp.partition: offset for tp, offset in relay_offsets.items()},
        )

    async def fetch_member_count(self, group: str) -> int | None:
        """See the port. A group that nobody was in for long has none either."""
        try:
            async with asyncio.timeout(LAG_TIMEOUT_S):
                return await count_members(self._admin, group) or 0
        except (KafkaError, TimeoutError) as error:
            _log.info("members.unknown", group=group, error=repr(error))
            return None

    async def fetch_group_offsets(
        self, group: str, topic: str, group_type: GroupType = "consumer"
    ) -> GroupOffsets | None:
        """See the port."""
        try:
            async with asyncio.timeout(LAG_TIMEOUT_S):
                await self._count_partitions({topic})
                offsets = await self._fetch_committed(group, topic, group_type)
                ends = await self._ends(
                    [TopicPartition(topic, n) for n in self._numbers(topic)]
                )
        except (KafkaError, TimeoutError) as error:
            self._coordinators.clear()
            _log.info("progress.unknown", group=group, error=repr(error))
            return None
        if offsets is None:
            return None
        return GroupOffsets(
            ends={tp.partition: end for tp, end in ends.items()},
            committed={tp.partition: offset for tp, offset in offsets.items()},
        )

    async def _fetch_committed(
        self, group: str, topic: str, group_type: GroupType
    ) -> Mapping[TopicPartition, int] | None:
        """How far a group has come; None if its coordinator does not say."""
        if group_type == "share":
            return (await self._fetch_share_starts([group])).get(group)
        found = await self._committed([group])
        return _offsets(topic, found[group]) if group in found else None

    async def _ends(self, asked: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if not asked:
            return {}
        ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(asked)
        return ends

    async def _fetch_log_starts(
        self, topics: Sequence[str]
    ) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Where these topics' partitions start, of those from which something was removed."""
        places = [TopicPartition(one, n) for one in topics for n in self._numbers(one)]
        asked_at = monotonic()
        if (
            self._log_starts_at is None
            or asked_at - self._log_starts_at >= _LOG_START_INTERVAL_S
        ):
            self._log_starts = await self._consumer.beginning_offsets(places) if places else {}
            self._log_starts_at = asked_at
        starts: dict[str, dict[TopicPartition, int]] = {one: {} for one in topics}
        for place in places:
            if first := self._log_starts.get(place, 0):
                starts[place.topic][place] = first
        return starts

    async def _count_partitions(self, names: Set[str]) -> None:
        new = names - self._partitions.keys()
        for described in await self._admin.describe_topics(sorted(new)) if new else ():
            if described["partitions"]:
                self._partitions[described["topic"]] = len(described["partitions"])

    async def _committed(self, groups: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """The topics, as the protocol has them, of every group that answered."""
        by_coordinator = await self._by_coordinator(groups)
        responses = await asyncio.gather(
            *(
                client_of(self._admin).send(node, MultiGroupOffsetFetchRequest(some))
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

    async def _fetch_share_starts(
        self, groups: Sequence[str]
    ) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Of every share group that answered, from where on records are not done with."""
        starts: dict[str, Mapping[TopicPartition, int]] = {}
        for node, some in (await self._by_coordinator(groups)).items():
            known = await share_consumer.fetch_share_offsets(self._admin, node, some)
            for group in some:
                if group not in known:
                    self._coordinators.pop(group, None)
                    continue
                starts[group] = {
                    # The start alone may stay behind what was done with last.
                    tp: one.start if one.lag else _BEYOND_ALL
                    for tp, one in known[group].items()
                }
        return starts

    async def _by_coordinator(self, groups: Sequence[str]) -> Mapping[int, Sequence[str]]:
        """The groups by the broker to ask; a broker that is away is waited for by nobody."""
        by_coordinator: dict[int, list[str]] = {}
        for group in groups:
            if group not in self._coordinators:
                self._coordinators[group] = await self._admin.find_coordinator(group)
            by_coordinator.setdefault(self._coordinators[group], []).append(group)
        return by_coordinator

    def _numbers(self, topic: str) -> range:
        return range(self._partitions.get(topic, 0))

    def _with_all_partitions(
        self, topic: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Committed offsets; a partition without one counts from 0 if another has one."""
        if not offsets:
            return {}
        numbers = self._numbers(topic)
        return {TopicPartition(topic, number): 0 for number in numbers} | dict(offsets)


def _later(
    one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """By place, the later of two offsets, or the only one."""
    return {tp: max(one.get(tp, 0), other.get(tp, 0)) for tp in one.keys() | other.keys()}


def _offsets(topic: str, found: Sequence[Any]) -> dict[TopicPartition, int]:
    """What a group has committed in a topic, from the topics as the protocol has them."""
    return {
        TopicPartition(topic, partition): offset
        for name, partitions, _ in found
        if name == topic
        for partition, offset, _, _, code, _ in partitions
        if not code and offset >= 0
    }
