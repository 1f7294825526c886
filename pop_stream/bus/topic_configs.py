"""What settings live topics have, as the brokers tell."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

_RETENTION = "retention.ms"
_FOR_EVER_MS = timedelta.max // timedelta(milliseconds=1)


async def describe_topic_configs(
    admin: AIOKafkaAdminClient, wanted: Mapping[str, Iterable[str]]
) -> Mapping[str, Mapping[str, str]]:
    """Of each topic the settings that are wanted, defaults of the broker included.

    Raises:
        KafkaError: If the brokers are away.
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
    """How long a live topic keeps records, `timedelta.max` for ever; None if there is none."""
    found = await describe_topic_configs(admin, {topic: [_RETENTION]})
    kept = found.get(topic, {}).get(_RETENTION)
    if kept is None:
        return None
    kept_ms = int(kept)
    is_for_ever = kept_ms < 0 or kept_ms >= _FOR_EVER_MS
    return timedelta.max if is_for_ever else timedelta(milliseconds=kept_ms)
