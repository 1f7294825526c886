"""Lag, committed offsets and member counts of groups, asked of the brokers in few requests."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from time import monotonic
from typing import Any, Final, NamedTuple

import structlog

from pop_stream.kafka import share_consumer
from pop_stream.kafka.clients import KafkaAdmin, KafkaConsumer
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.group_members import count_members
from pop_stream.kafka.hardening.internals import client_of
from pop_stream.kafka.protocol import MultiGroupOffsetFetchRequest
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import GroupType
from pop_stream.model.ids import InsightId
from pop_stream.ports.lag import GroupOffsets, LagSnapshot
from pop_stream.ports.records import TopicPartition

LAG_TIMEOUT_S: Final = 5.0
"""After it a question is given up, and its answer is unknown; nothing is kept of it."""

_BEYOND_ALL: Final = 2**62

_LOG_START_INTERVAL_S: Final = 5.0

_log = structlog.get_logger()


class _Groups(NamedTuple):
    """The groups of one call: those of insights by name, and the relay's if it is wanted."""

    consumers: Mapping[str, InsightId]
    shared: Mapping[str, InsightId]
    relay: str | None

    @property
    def relays(self) -> Sequence[str]:
        return [] if self.relay is None else [self.relay]


class KafkaLagProbe:
    """The port `LagProbe`: one request per coordinator for committed offsets, one for all ends.

    So the cost does not grow with the number of insights. Records that were removed from the
    start of a topic, by hand or for their age, count as read: nobody can read them, and nobody
    commits past them before there is more to read. Where topics start is asked every few
    seconds, and remembered in between.

    The coordinator of a group is looked up once per group, and again after a call that failed
    or a group that moved: its broker may be gone for good. Calls may overlap.

    Args:
        topics: Names of topics and groups.
        admin: Started; closed by the caller.
        consumer: Without a group, started; stopped by the caller.
    """

    def __init__(self, topics: Topics, admin: KafkaAdmin, consumer: KafkaConsumer) -> None:
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
        """See the port. The lag of an insight whose group never committed is unknown."""
        groups = _Groups(
            consumers={self._topics.puller_group(one): one for one in insights},
            shared={self._topics.puller_group(one, "share"): one for one in shared},
            relay=self._topics.group("relay") if relay else None,
        )
        try:
            async with asyncio.timeout(LAG_TIMEOUT_S):
                return await self._fetch_snapshot(groups)
        except (KafkaError, TimeoutError) as error:
            self._coordinators.clear()
            _log.info("lag.unknown", error=repr(error))
            return LagSnapshot()

    async def _fetch_snapshot(self, groups: "_Groups") -> LagSnapshot:
        events = self._topics.agenda_events
        topics = {*groups.consumers, *groups.shared}  # groups are named like their topics
        await self._count_partitions(topics | ({events} if groups.relay else set()))
        committed = await self._committed([*groups.consumers, *groups.relays])
        offsets = await self._fetch_offsets(groups, committed)
        event_partitions = [TopicPartition(events, n) for n in self._numbers(events)]
        ends = await self._ends(
            [tp for some in offsets.values() for tp in some]
            + (event_partitions if groups.relay else [])
        )
        lags = {
            one: [max(0, ends[tp] - some[tp]) for tp in sorted(some)]
            for one, some in offsets.items()
            if some
        }
        if groups.relay is None or groups.relay not in committed:
            return LagSnapshot(lags)
        relay_offsets = _offsets(events, committed[groups.relay])
        return LagSnapshot(
            lags,
            end_offsets={tp.partition: ends[tp] for tp in event_partitions},
            relay_offsets={tp.partition: offset for tp, offset in relay_offsets.items()},
        )

    async def _fetch_offsets(
        self, groups: "_Groups", committed: Mapping[str, Sequence[Any]]
    ) -> Mapping[InsightId, Mapping[TopicPartition, int]]:
        """By insight and partition, the first offset that is not done with; none if unknown."""
        share_starts = await self._fetch_share_starts([*groups.shared])
        log_starts = await self._fetch_log_starts([*groups.consumers])
        return {
            one: self._with_all_partitions(
                topic, _later(log_starts[topic], _offsets(topic, committed.get(topic, ())))
            )
            for topic, one in groups.consumers.items()
        } | {
            one: self._with_all_partitions(topic, share_starts.get(topic, {}))
            for topic, one in groups.shared.items()
        }

    async def fetch_member_count(self, group: str) -> int | None:
        """See the port. A group that does not exist has no members."""
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
        """What a group has committed in a topic; None if its coordinator does not say."""
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
        """By topic and partition, where it starts; absent if nothing was ever removed there."""
        partitions = [TopicPartition(one, n) for one in topics for n in self._numbers(one)]
        asked_at = monotonic()
        if (
            self._log_starts_at is None
            or asked_at - self._log_starts_at >= _LOG_START_INTERVAL_S
        ):
            self._log_starts = (
                await self._consumer.beginning_offsets(partitions) if partitions else {}
            )
            self._log_starts_at = asked_at
        starts: dict[str, dict[TopicPartition, int]] = {one: {} for one in topics}
        for partition in partitions:
            if first := self._log_starts.get(partition, 0):
                starts[partition.topic][partition] = first
        return starts

    async def _count_partitions(self, names: Set[str]) -> None:
        new = names - self._partitions.keys()
        for described in await self._admin.describe_topics(sorted(new)) if new else ():
            if described["partitions"]:
                self._partitions[described["topic"]] = len(described["partitions"])

    async def _committed(self, groups: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Of every group whose coordinator answered, its topics in the protocol's own form."""
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
        """By share group and partition, the first record that is not done with.

        Groups whose coordinator did not answer are absent.
        """
        starts: dict[str, Mapping[TopicPartition, int]] = {}
        for node, some in (await self._by_coordinator(groups)).items():
            known = await share_consumer.fetch_share_offsets(self._admin, node, some)
            for group in some:
                if group not in known:
                    self._coordinators.pop(group, None)
                    continue
                starts[group] = {
                    # With no lag the start says nothing: it may lie before the last record.
                    tp: one.start if one.lag else _BEYOND_ALL
                    for tp, one in known[group].items()
                }
        return starts

    async def _by_coordinator(self, groups: Sequence[str]) -> Mapping[int, Sequence[str]]:
        """The groups by their coordinator, which is looked up for groups that are new."""
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
        """With 0 for partitions without an offset, if any other partition has one."""
        if not offsets:
            return {}
        numbers = self._numbers(topic)
        return {TopicPartition(topic, number): 0 for number in numbers} | dict(offsets)


def _later(
    one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """By partition, the later of two offsets, or the only one."""
    return {tp: max(one.get(tp, 0), other.get(tp, 0)) for tp in one.keys() | other.keys()}


def _offsets(topic: str, found: Sequence[Any]) -> dict[TopicPartition, int]:
    """What a group has committed in a topic, from its topics in the protocol's own form."""
    return {
        TopicPartition(topic, partition): offset
        for name, partitions, _ in found
        if name == topic
        for partition, offset, _, _, code, _ in partitions
        if not code and offset >= 0
    }
