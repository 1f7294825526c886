"""The names of all topics and groups; topics are created and verified from the catalog."""

import asyncio
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, for_code

from pop_stream.model.definitions import GroupType
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import MAX_RECORD_BYTES
from pop_stream.resources import resource_folder

_RETENTION = "retention.ms"
_FOR_EVER_MS = timedelta.max // timedelta(milliseconds=1)


async def describe_topic_configs(
    admin: AIOKafkaAdminClient, wanted: Mapping[str, Iterable[str]]
) -> Mapping[str, Mapping[str, str]]:
    """By topic, the values of the settings that are named, the broker's defaults included.

    Raises:
        KafkaError: If the brokers cannot be asked.
    """
    asked = [
        ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(keys, ""))
        for name, keys in wanted.items()
    ]
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for response in (await admin.describe_configs(asked) if asked else ())
        for _, _, _, name, entries in response.resources
    }


async def fetch_retention(admin: AIOKafkaAdminClient, topic: str) -> timedelta | None:
    """How long a topic keeps records, `timedelta.max` for ever; None if it does not exist."""
    found = await describe_topic_configs(admin, {topic: [_RETENTION]})
    kept = found.get(topic, {}).get(_RETENTION)
    if kept is None:
        return None
    kept_ms = int(kept)
    is_for_ever = kept_ms < 0 or kept_ms >= _FOR_EVER_MS
    return timedelta.max if is_for_ever else timedelta(milliseconds=kept_ms)


_TOPIC_EXISTS: Final = 36
_MAX_MESSAGE: Final = "max.message.bytes"

MIN_MAX_MESSAGE_BYTES: Final = MAX_RECORD_BYTES + 16 * 1024
"""What every topic must take: a batch of one record of the largest size, with its overhead."""

_HOUR_MS: Final = 3_600_000
_COMMON_CONFIGS: Final = {
    # The broker's clock: with a writer's, records of more than an hour ahead are refused, and
    # retention removes at once what has an old timestamp.
    "message.timestamp.type": "LogAppendTime",
}
_DEFAULT_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",  # a broker's default would remove records early
}
_VISIBLE_TIMEOUT_S: Final = 20.0
_TOPIC_KINDS: Final[Mapping[GroupType, str]] = {"consumer": "insight", "share": "share"}


class InsightSubscription(NamedTuple):
    """The topic of an insight, and the group in which its pullers read it."""

    insight_id: str
    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of topics and consumer groups under one prefix, such as `pop.`."""

    prefix: str

    @property
    def submissions(self) -> str:
        """Submitted agendas; public."""
        return f"{self.prefix}submissions"

    @property
    def ready(self) -> str:
        """The scheduler's input, keyed by insight."""
        return f"{self.prefix}ready"

    @property
    def agenda_events(self) -> str:
        """Lifecycle events of agendas, keyed by agenda; public."""
        return f"{self.prefix}agenda-events"

    @property
    def definitions(self) -> str:
        """Definitions in force and API keys, compacted."""
        return f"{self.prefix}definitions"

    @property
    def decisions(self) -> str:
        """One record per emission round."""
        return f"{self.prefix}decisions"

    @property
    def query_replies(self) -> str:
        """The scheduler's replies to queries."""
        return f"{self.prefix}query-replies"

    @property
    def quota_usage(self) -> str:
        """Ready agendas and submissions in flight by customer, for quotas."""
        return f"{self.prefix}quota-usage"

    @property
    def controls(self) -> str:
        """Attempts that are to stop; every puller reads all of it."""
        return f"{self.prefix}controls"

    @property
    def poll_demand(self) -> str:
        """How many agendas HTTP workers wait for, keyed by insight."""
        return f"{self.prefix}poll-demand"

    @property
    def deliveries(self) -> str:
        """Claimed agendas for HTTP workers; every process of the API reads all of it."""
        return f"{self.prefix}deliveries"

    @property
    def occasions(self) -> str:
        """Ends of occurrences and commands about schedules, keyed by schedule."""
        return f"{self.prefix}occasions"

    @property
    def timekeeper(self) -> str:
        """Up to where each schedule has come, compacted."""
        return f"{self.prefix}timekeeper"

    @property
    def agenda_ends(self) -> str:
        """How agendas have ended, while a rule waits for that; public."""
        return f"{self.prefix}agenda-ends"

    @property
    def idle_insights(self) -> str:
        """Which insights have become idle, while a rule waits for that."""
        return f"{self.prefix}idle-insights"

    @property
    def rule_actions(self) -> str:
        """What rules do that needs the database."""
        return f"{self.prefix}rule-actions"

    @property
    def rule_states(self) -> str:
        """How far each rule is, compacted."""
        return f"{self.prefix}rule-states"

    @property
    def schedule_events(self) -> str:
        """What was decided about occurrences of schedules; public."""
        return f"{self.prefix}schedule-events"

    @property
    def dead_letters(self) -> str:
        """Records of public topics that no part could use, and agendas that failed for good."""
        return f"{self.prefix}dead-letters"

    @property
    def dead_webhooks(self) -> str:
        """Webhooks that no try could deliver."""
        return f"{self.prefix}dead-webhooks"

    def insight(self, insight_id: str, group_type: GroupType = "consumer") -> str:
        """The topic that an insight's pullers read; each type of group has one of its own.

        An id may be defined anew with the other type. A share group starts at the earliest
        record, so on the same topic it would repeat what a consumer group has done.
        """
        return f"{self.prefix}{_TOPIC_KINDS[group_type]}.{insight_id}"

    def is_insight_topic(self, topic: str) -> bool:
        """Whether a topic is one that pullers of an insight read."""
        kinds = tuple(f"{self.prefix}{one}." for one in _TOPIC_KINDS.values())
        return topic.startswith(kinds)

    def insight_of(self, topic: str) -> str | None:
        """The insight whose pullers read a topic; None for other topics."""
        for kind in _TOPIC_KINDS.values():
            start = f"{self.prefix}{kind}."
            if topic.startswith(start):
                return topic.removeprefix(start)
        return None

    def is_own(self, topic: str) -> bool:
        """Whether a topic is one of the service's, or would be by its name."""
        if self.prefix:
            return topic.startswith(self.prefix)
        fixed = {spec.name for spec in catalog(self)}
        return topic in fixed or self.insight_of(topic) is not None

    def puller_group(self, insight_id: str, group_type: GroupType = "consumer") -> str:
        """The group of an insight's pullers, named like its topic; its lag drives emission.

        Kafka does not allow one id for a consumer group and a share group.
        """
        return self.insight(insight_id, group_type)

    def insight_subscription(
        self, insight_id: str, group_type: GroupType = "consumer"
    ) -> InsightSubscription:
        """The topic and the group of an insight's pullers."""
        topic = self.insight(insight_id, group_type)
        return InsightSubscription(insight_id, topic, self.puller_group(insight_id, group_type))

    def group(self, part: str) -> str:
        """The consumer group of a part, such as `ingest`."""
        return f"{self.prefix}{part}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as the catalog wants it."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def retention(self) -> timedelta | None:
        """How long records are kept; None if for ever."""
        kept_ms = self.configs.get("retention.ms")
        return None if kept_ms is None else timedelta(milliseconds=int(kept_ms))


def catalog(topics: Topics) -> Sequence[TopicSpec]:
    """The fixed topics, as `topics/catalog.toml` has them."""
    document = tomllib.loads((resource_folder("topics") / "catalog.toml").read_text())
    return [
        TopicSpec(f"{topics.prefix}{name}", entry["partitions"], _configs(entry))
        for name, entry in document["topics"].items()
    ]


def insight_spec(
    topics: Topics, insight_id: str, partitions: int, group_type: GroupType = "consumer"
) -> TopicSpec:
    """The topic of one insight."""
    document = tomllib.loads((resource_folder("topics") / "catalog.toml").read_text())
    name = topics.insight(insight_id, group_type)
    return TopicSpec(name, partitions, _configs(document["insight-topics"]))


async def ensure(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], *, replication_factor: int
) -> list[str]:
    """Create the topics that are missing and wait until the cluster shows them.

    Returns:
        Names of those created by this call.

    Raises:
        UnavailableError: If the broker refuses a topic, with its reason, or it has no leader
            within 20 s.
    """
    present = set(await admin.list_topics())
    missing = [spec for spec in specs if spec.name not in present]
    if not missing:
        return []
    response = await admin.create_topics(
        [
            NewTopic(
                name=spec.name,
                num_partitions=spec.partitions,
                replication_factor=replication_factor,
                topic_configs=dict(spec.configs),
            )
            for spec in missing
        ]
    )
    for name, code, *reason in response.topic_errors:
        if code not in {0, _TOPIC_EXISTS}:
            msg = f"topic {name} could not be created: {for_code(code).__name__} {reason}"
            raise UnavailableError(msg)
    await _until_visible(admin, {spec.name for spec in missing})
    return [spec.name for spec in missing]


async def add_partitions(admin: AIOKafkaAdminClient, spec: TopicSpec) -> int:
    """Add the partitions that a topic lacks; returns how many it has then.

    A topic that has more keeps them: Kafka cannot take partitions away.

    Raises:
        KafkaError: If the broker refuses.
    """
    [found] = await admin.describe_topics([spec.name])
    count = len(found["partitions"])
    if count >= spec.partitions:
        return count
    with suppress(InvalidPartitionsError):  # another process has just done it
        await admin.create_partitions({spec.name: NewPartitions(spec.partitions)})
    return spec.partitions


async def find_topic_errors(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]
) -> list[str]:
    """How topics differ from the catalog, in words with the remedy; empty if they do not."""
    present = set(await admin.list_topics())
    known = [spec for spec in specs if spec.name in present]
    found = [
        f"{spec.name} is missing: run `pop-stream migrate`"
        for spec in specs
        if spec.name not in present
    ]
    for topic in await admin.describe_topics([spec.name for spec in known]):
        spec = next(one for one in known if one.name == topic["topic"])
        count = len(topic["partitions"])
        if count != spec.partitions:
            found.append(
                f"{spec.name} has {count} partitions, the catalog says {spec.partitions}: "
                "keys would map to other partitions; recreate it"
            )
    return [*found, *await _config_errors(admin, known)]


async def find_insight_topic_errors(admin: AIOKafkaAdminClient, topics: Topics) -> list[str]:
    """Problems with settings of the insights' topics that exist, in words with the remedy."""
    names = sorted(await admin.list_topics())
    specs = [
        insight_spec(topics, name.removeprefix(start), 1, group_type)
        for group_type in _TOPIC_KINDS
        if (start := topics.insight("", group_type))
        for name in names
        if name.startswith(start)
    ]
    return await _config_errors(admin, specs)


async def _config_errors(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[str]:
    """Settings that differ from the catalog: a retention too short loses work.

    Also topics that take smaller batches than parts write: what is larger would be left out.
    """
    wanted = {spec.name: {**_DEFAULT_CONFIGS, **spec.configs} for spec in specs if spec.configs}
    asked = {name: [*configs, _MAX_MESSAGE] for name, configs in wanted.items()}
    known = await describe_topic_configs(admin, asked)
    narrow = [
        f"{name} takes batches of {found[_MAX_MESSAGE]} bytes, and parts write up to "
        f"{MIN_MAX_MESSAGE_BYTES}: run `kafka-configs.sh --alter --entity-type topics "
        f"--entity-name {name} --add-config {_MAX_MESSAGE}={MIN_MAX_MESSAGE_BYTES}`, or raise "
        "message.max.bytes of all brokers"
        for name, found in known.items()
        if int(found.get(_MAX_MESSAGE) or MIN_MAX_MESSAGE_BYTES) < MIN_MAX_MESSAGE_BYTES
    ]
    return narrow + [
        f"{name} has {key} = {found.get(key)}, the catalog says {value}: run `kafka-configs.sh "
        f"--alter --entity-type topics --entity-name {name} --add-config {key}={value}`, or "
        "know why"
        for name, found in known.items()
        for key, value in wanted[name].items()
        if found.get(key) != value
    ]


async def _until_visible(admin: AIOKafkaAdminClient, names: set[str]) -> None:
    try:
        async with asyncio.timeout(_VISIBLE_TIMEOUT_S):
            while True:
                found = await admin.describe_topics(sorted(names))
                if all(one["error_code"] == 0 and _has_leaders(one) for one in found):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        msg = f"topics {sorted(names)} were created but have no leader yet"
        raise UnavailableError(msg) from None


def _has_leaders(found: Mapping[str, Any]) -> bool:
    partitions = found["partitions"]
    return bool(partitions) and all(one["leader"] >= 0 for one in partitions)


def _configs(entry: Mapping[str, Any]) -> dict[str, str]:
    if entry.get("compacted"):
        return {"cleanup.policy": "compact", **_COMMON_CONFIGS, **entry.get("configs", {})}
    return {"retention.ms": str(entry["retention_hours"] * _HOUR_MS), **_COMMON_CONFIGS}
