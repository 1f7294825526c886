"""What aiokafka cannot ask of a broker about share groups (KIP-932): settings and progress.

IncrementalAlterConfigs version 0, and DescribeShareGroupOffsets version 1 (KIP-1226), which
brokers have from Kafka 4.2 on.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

_ALTER_CONFIGS: Final = 44
_GROUP: Final = 32
_SET: Final = 0
_DESCRIBE_OFFSETS: Final = 90


async def start_at_earliest(admin: AIOKafkaAdminClient, group: str) -> None:
    """Have a share group begin with the first record of a topic that is new to it.

    Without it, it begins with what comes after its first member. Harmless if repeated.

    Raises:
        KafkaError: If the broker refuses: it has no share groups, or forbids it.
    """
    settings = [("share.auto.offset.reset", _SET, "earliest")]
    response = await admin._send_request(_GroupSettings(group, settings))  # noqa: SLF001
    for code, message, _, _ in response.responses:
        if code:
            msg = f"share group {group}: {message}"
            raise for_code(code)(msg)


class Standing(NamedTuple):
    """How far a share group has come with a partition.

    Attributes:
        start: The first record that may not be done with. What is done with before the next
            answer of a member shows late in it.
        lag: Records that are not done with, wherever they lie past it.
    """

    start: int
    lag: int


async def standings(
    admin: AIOKafkaAdminClient, node: int, groups: Sequence[str]
) -> Mapping[str, Mapping[TopicPartition, Standing]]:
    """How far share groups have come with the partitions that they have begun to read.

    Args:
        admin: Started.
        node: Coordinator of the groups.
        groups: Their ids; those of which the node cannot tell are left out.
    """
    response = await admin._send_request_to_node(node, _ShareOffsets(groups))  # noqa: SLF001
    return {
        group: _standings(topics) for group, topics, code, _, _ in response.groups if not code
    }


def _standings(topics: Sequence[Any]) -> dict[TopicPartition, Standing]:
    return {
        TopicPartition(name, partition): Standing(start, lag)
        for name, _, partitions, _ in topics
        for partition, start, _, lag, code, _, _ in partitions
        if not code and start >= 0
    }


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _GroupSettingsResponseV0(Response):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = _ALTER_CONFIGS
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _GroupSettingsRequestV0(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = _ALTER_CONFIGS
    API_VERSION = 0
    RESPONSE_TYPE = _GroupSettingsResponseV0
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(
                        ("name", String("utf-8")),
                        ("operation", Int8),
                        ("value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class _GroupSettings(Request[_GroupSettingsRequestV0]):  # type: ignore[misc]  # as above
    API_KEY = _ALTER_CONFIGS

    def __init__(self, group: str, settings: Sequence[tuple[str, int, str]]) -> None:
        self._group = group
        self._settings = settings

    def build(
        self, request_struct_class: type[_GroupSettingsRequestV0]
    ) -> _GroupSettingsRequestV0:
        resources = [(_GROUP, self._group, self._settings)]
        return request_struct_class(resources, False)  # positional by protocol


class _ShareOffsetsResponseV1(Response):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = _DESCRIBE_OFFSETS
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group_id", CompactString("utf-8")),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString("utf-8")),
                        ("topic_id", _Uuid),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("start_offset", Int64),
                                ("leader_epoch", Int32),
                                ("lag", Int64),
                                ("error_code", Int16),
                                ("error_message", CompactString("utf-8")),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ShareOffsetsRequestV1(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    FLEXIBLE_VERSION = True
    API_KEY = _DESCRIBE_OFFSETS
    API_VERSION = 1
    RESPONSE_TYPE = _ShareOffsetsResponseV1
    SCHEMA = Schema(
        (
            "groups",
            CompactArray(
                ("group_id", CompactString("utf-8")),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString("utf-8")),
                        ("partitions", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ShareOffsets(Request[_ShareOffsetsRequestV1]):  # type: ignore[misc]  # as above
    API_KEY = _DESCRIBE_OFFSETS

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(
        self, request_struct_class: type[_ShareOffsetsRequestV1]
    ) -> _ShareOffsetsRequestV1:
        """The message on the wire; no topics means all topics."""
        groups: list[tuple[str, None, dict[int, bytes]]]
        groups = [(group, None, {}) for group in self._groups]
        return request_struct_class(groups, {})  # positional by protocol
