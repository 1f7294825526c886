"""Whether every part that is needed is there and keeps up with what waits for it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.kafka import clients, connections
from pop_stream.kafka.clients import KafkaAdmin
from pop_stream.kafka.group_members import count_members
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.topic_reader import read_range
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, GroupType
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import InsightTick
from pop_stream.policy.stall import stalled_lag
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import TopicPartition
from pop_stream.settings import Settings

STALL_AFTER_S: Final = 10.0
"""How long what waits may stay where it is: parts commit every second, but join in a few."""

LATE_AFTER: Final = timedelta(minutes=1)
"""How old what waits for a part may be, while the part moves."""

_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group that must work off its topics.

    Attributes:
        name: Of the part, for a person.
        command: That starts it.
        topics: At least one.
        may_lag: It leaves what it has no room for where it is, so only its absence is a fault.
    """

    name: str
    command: str
    group: str
    topics: Sequence[str]
    may_lag: bool = False
    group_type: GroupType = "consumer"


async def find_stalled_parts(settings: Settings, definitions: Definitions) -> list[str]:
    """Parts that are down, frozen or stuck, in words; a system never started has none.

    Takes `STALL_AFTER_S` if something waits that nobody deals with, else a second or two.

    Args:
        settings: Where the brokers are.
        definitions: Those in force: each insight needs pullers.

    Raises:
        KafkaError: If the brokers are away.
        UnavailableError: If nothing can be written.
    """
    names = Topics(settings.topic_prefix)
    async with (
        connections.admin_client(settings, client_id="doctor") as admin,
        clients.consumer(settings, client_id="doctor", group_id=None) as consumer,
    ):
        probe = KafkaLagProbe(names, admin, consumer)
        await _publish_tick(settings, names, admin)
        groups = [*consumer_groups(names, definitions)]
        looks = [_check(one, admin, probe) for one in groups]
        found = await asyncio.gather(*looks)
        late = [
            one
            for one, faults in zip(groups, found, strict=True)
            if not faults and await count_members(admin, one.group, one.group_type)
        ]
        ages = [_late_findings(settings, one, probe) for one in late]
        found += await asyncio.gather(*ages)
        return [one for some in found for one in some]


def consumer_groups(names: Topics, definitions: Definitions) -> Iterator[ConsumerGroup]:
    """Every group that must work off its topics."""
    events, ingest = names.agenda_events, "pop-stream ingest"
    yield ConsumerGroup("ingest", ingest, names.group("ingest"), [names.submissions])
    yield ConsumerGroup("the relay", ingest, names.group("relay"), [events])
    scheduler = "pop-stream scheduler"
    yield ConsumerGroup("the scheduler", scheduler, names.group("scheduler"), [names.ready])
    yield ConsumerGroup("the rollup", "pop-stream rollup", names.group("rollup"), [events])
    for one in definitions.insights.values():
        queue = names.insight_subscription(one.id, one.group_type)
        yield ConsumerGroup(
            f"every puller of {one.id}",
            f"pop-stream pull --insight {one.id}",
            queue.group,
            [queue.topic],
            may_lag=True,
            group_type=one.group_type,
        )


async def _check(reader: ConsumerGroup, admin: KafkaAdmin, probe: KafkaLagProbe) -> list[str]:
    members = await count_members(admin, reader.group, reader.group_type)
    waiting = {} if reader.may_lag and members else await _waiting(reader, probe)
    many, where = f"{sum(waiting.values()):,}", ", ".join(waiting)
    if not members and (waiting or (members is not None and not reader.may_lag)):
        what = f"; records waiting in {where}: {many}" if waiting else ""
        return [f"{reader.name} is down{what}; start `{reader.command}`"]
    if waiting:
        return [
            f"{reader.name} stands still; records waiting in {where} for "
            f"{STALL_AFTER_S:g} s or more: {many}; if its process is up, end it with kill -9 "
            "and start it again"
        ]
    return []


async def _late_findings(
    settings: Settings, reader: ConsumerGroup, probe: KafkaLagProbe
) -> list[str]:
    """What a part that moves is too far behind with: events, or agendas to route or place."""
    if reader.may_lag:
        return []
    ages = {
        topic: await oldest_waiting(settings, reader, topic, probe) for topic in reader.topics
    }
    return [
        f"{reader.name} is behind: what waits for it in {topic} was written up to "
        f"{in_words(age)} ago; start more of `{reader.command}`, or see its log"
        for topic, age in ages.items()
        if age >= LATE_AFTER
    ]


async def oldest_waiting(
    settings: Settings, reader: ConsumerGroup, topic: str, probe: KafkaLagProbe
) -> timedelta:
    """For how long the oldest record of a topic has waited for a group; zero if none waits.

    By the broker's clock when it was written, and by this machine's now.
    """
    offsets = await probe.fetch_group_offsets(reader.group, topic, reader.group_type)
    if offsets is None:
        return timedelta(0)
    written_ms: list[int] = []
    for number, end in offsets.ends.items():
        begin = max(0, offsets.committed.get(number, 0))
        if begin >= end:
            continue
        place = TopicPartition(topic, number)
        async with aclosing(read_range(settings, place, begin, end)) as records:
            async for record in records:
                written_ms.append(record.timestamp)
                break
    if not written_ms:
        return timedelta(0)
    now_s = WallClock().now().timestamp()
    return timedelta(seconds=max(0.0, now_s - min(written_ms) / 1000))


def in_words(age: timedelta) -> str:
    """A span as a person says it: its whole minutes, or seconds."""
    minutes, seconds = divmod(int(age.total_seconds()), 60)
    return f"{minutes:,} min" if minutes else f"{seconds} s"


async def _waiting(reader: ConsumerGroup, probe: KafkaLagProbe) -> Mapping[str, int]:
    """Records waiting by topic that did not move within `STALL_AFTER_S`."""
    counts = await asyncio.gather(
        *(_stalled_in(one, reader.group, reader.group_type, probe) for one in reader.topics)
    )
    return {one: count for one, count in zip(reader.topics, counts, strict=True) if count}


async def _stalled_in(
    topic: str, group: str, group_type: GroupType, probe: KafkaLagProbe
) -> int:
    first = await probe.fetch_group_offsets(group, topic, group_type)
    if first is None:
        return 0
    until = asyncio.get_running_loop().time() + STALL_AFTER_S
    left = stalled_lag(first.ends, first.committed, first.committed)
    while left and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(_POLL_S)
        now = await probe.fetch_group_offsets(group, topic, group_type)
        if now is not None:
            left = stalled_lag(first.ends, first.committed, now.committed)
    return sum(left.values())


async def _publish_tick(settings: Settings, names: Topics, admin: KafkaAdmin) -> None:
    """Publish a tick, as schedulers do: a frozen scheduler without input looks idle."""
    if not await count_members(admin, names.group("scheduler")):
        return
    tick = encode(InsightTick(insight_id=""))
    async with connections.publisher(settings, client_id="doctor") as publisher:
        numbers = range(await publisher.partitions(names.ready))
        await publisher.publish([Record(names.ready, None, tick, number) for number in numbers])
