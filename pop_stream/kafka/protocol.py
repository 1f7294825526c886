"""Messages of Kafka's protocol that aiokafka does not know.

| message | version | what for | brokers |
|---|---|---|---|
| OffsetFetch | 8 (KIP-709) | offsets of many groups; aiokafka asks group by group | all |
| DescribeShareGroupOffsets | 1 (KIP-1226) | lag of share groups | 4.2 |
| ShareGroupDescribe | 1 (KIP-932) | members of a share group | 4.1 |
| IncrementalAlterConfigs | 0 | one setting of a group, the others kept | all |

A request is sent to a certain broker by `hardening.internals`; its answer is what the schema
of the response says, field by field.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Final

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

_OFFSET_FETCH: Final = 9
_SHARE_OFFSETS: Final = 90

_TEXT: Final = CompactString("utf-8")
_TAGS: Final = ("tags", TaggedFields)
_ERROR: Final = ("error_code", Int16)
_ERROR_TEXT: Final = ("error_message", _TEXT)


class Uuid(AbstractType[bytes]):  # type: ignore[misc]  # as all here: aiokafka is untyped
    """An id of a topic: sixteen bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """The sixteen bytes as they are."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """The sixteen bytes as they are."""
        return data.read(16)


_OF_GROUPS: Final = (
    "groups",
    CompactArray(
        ("group_id", _TEXT),
        ("topics", CompactArray(("name", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        _TAGS,
    ),
)


def _every_topic(groups: Sequence[str]) -> list[tuple[str, None, dict[int, bytes]]]:
    """The groups in the form of `_OF_GROUPS`, where no topics means all topics."""
    return [(group, None, {}) for group in groups]


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = _OFFSET_FETCH
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group_id", _TEXT),
                (
                    "topics",
                    CompactArray(
                        ("name", _TEXT),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", _TEXT),
                                _ERROR,
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                _ERROR,
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _OffsetFetch(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _OFFSET_FETCH
    API_VERSION = 8
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(_OF_GROUPS, ("require_stable", Boolean), _TAGS)


class MultiGroupOffsetFetchRequest(Request[_OffsetFetch]):  # type: ignore[misc]
    """Asks one coordinator for all committed offsets of its groups.

    By group and topic it answers: partition, committed offset (-1 for none), an error code.

    Args:
        groups: Their ids; each must have this broker as its coordinator.
    """

    API_KEY = _OFFSET_FETCH

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_OffsetFetch]) -> _OffsetFetch:
        """The message on the wire."""
        groups = _every_topic(self._groups)
        return request_struct_class(groups, False, {})  # positional by protocol


class _ShareOffsetsResponse(Response):  # type: ignore[misc]
    API_KEY = _SHARE_OFFSETS
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group_id", _TEXT),
                (
                    "topics",
                    CompactArray(
                        ("name", _TEXT),
                        ("topic_id", Uuid),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("start_offset", Int64),
                                ("leader_epoch", Int32),
                                ("lag", Int64),
                                _ERROR,
                                _ERROR_TEXT,
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                _ERROR,
                _ERROR_TEXT,
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _ShareOffsets(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _SHARE_OFFSETS
    API_VERSION = 1
    RESPONSE_TYPE = _ShareOffsetsResponse
    SCHEMA = Schema(_OF_GROUPS, _TAGS)


class DescribeShareGroupOffsetsRequest(Request[_ShareOffsets]):  # type: ignore[misc]
    """Asks one coordinator for start and lag of its share groups, by topic and partition."""

    API_KEY = _SHARE_OFFSETS

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_ShareOffsets]) -> _ShareOffsets:
        """The message on the wire."""
        return request_struct_class(_every_topic(self._groups), {})


_ALTER_CONFIGS: Final = 44
_SHARE_DESCRIBE: Final = 77

_GROUP: Final = 32
_SET: Final = 0

_NAME: Final = String("utf-8")


class _ShareGroupDescribeResponse(Response):  # type: ignore[misc]
    API_KEY = _SHARE_DESCRIBE
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("group_id", _TEXT),
                ("state", _TEXT),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor", _TEXT),
                (
                    "members",
                    CompactArray(
                        ("member_id", _TEXT),
                        ("rack_id", _TEXT),
                        ("member_epoch", Int32),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("topics", CompactArray(_TEXT)),
                        # One structure of a list; then its tags.
                        (
                            "assigned",
                            CompactArray(
                                ("topic_id", Uuid),
                                ("name", _TEXT),
                                ("partitions", CompactArray(Int32)),
                                _TAGS,
                            ),
                        ),
                        ("assignment_tags", TaggedFields),
                        _TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _ShareGroupDescribe(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _SHARE_DESCRIBE
    API_VERSION = 1
    RESPONSE_TYPE = _ShareGroupDescribeResponse
    SCHEMA = Schema(("groups", CompactArray(_TEXT)), ("with_operations", Boolean), _TAGS)


class ShareGroupDescribeRequest(Request[_ShareGroupDescribe]):  # type: ignore[misc]
    """Asks the coordinator of one share group for its state and its members."""

    API_KEY = _SHARE_DESCRIBE

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_ShareGroupDescribe]) -> _ShareGroupDescribe:
        """The message on the wire."""
        return request_struct_class([self._group], False, {})  # positional by protocol


class _IncrementalAlterConfigsResponse(Response):  # type: ignore[misc]
    API_KEY = _ALTER_CONFIGS
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", _NAME),
                ("resource_type", Int8),
                ("resource_name", _NAME),
            ),
        ),
    )


class _IncrementalAlterConfigs(RequestStruct):  # type: ignore[misc]
    API_KEY = _ALTER_CONFIGS
    API_VERSION = 0
    RESPONSE_TYPE = _IncrementalAlterConfigsResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", _NAME),
                (
                    "configs",
                    Array(
                        ("name", _NAME),
                        ("operation", Int8),
                        ("value", _NAME),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class IncrementalAlterConfigsRequest(Request[_IncrementalAlterConfigs]):  # type: ignore[misc]
    """Changes one setting of a group, and leaves its others as they are."""

    API_KEY = _ALTER_CONFIGS

    def __init__(self, group: str, name: str, value: str) -> None:
        self._resource = (_GROUP, group, [(name, _SET, value)])

    def build(
        self, request_struct_class: type[_IncrementalAlterConfigs]
    ) -> _IncrementalAlterConfigs:
        """The message on the wire."""
        return request_struct_class([self._resource], False)  # positional by protocol
