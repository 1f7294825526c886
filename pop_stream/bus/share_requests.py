"""The protocol messages that change settings of a share group, and ask for members (KIP-932).

IncrementalAlterConfigs version 0, and ShareGroupDescribe version 1, which brokers have from
Kafka 4.1 on. aiokafka knows neither.
"""

from typing import Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

from pop_stream.bus.group_requests import Uuid

_ALTER_CONFIGS: Final = 44
_SHARE_DESCRIBE: Final = 77

_GROUP: Final = 32
_SET: Final = 0

_NAME: Final = String("utf-8")
_TEXT: Final = CompactString("utf-8")
_TAGS: Final = ("tags", TaggedFields)


class _ShareGroupDescribeResponse(Response):  # type: ignore[misc]  # aiokafka is untyped
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


class _ShareGroupDescribe(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    FLEXIBLE_VERSION = True
    API_KEY = _SHARE_DESCRIBE
    API_VERSION = 1
    RESPONSE_TYPE = _ShareGroupDescribeResponse
    SCHEMA = Schema(("groups", CompactArray(_TEXT)), ("with_operations", Boolean), _TAGS)


class ShareGroupDescribeRequest(Request[_ShareGroupDescribe]):  # type: ignore[misc]  # aiokafka is untyped
    """Asks the coordinator of one share group who belongs to it."""

    API_KEY = _SHARE_DESCRIBE

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_ShareGroupDescribe]) -> _ShareGroupDescribe:
        """The message on the wire."""
        return request_struct_class([self._group], False, {})  # positional by protocol


class _IncrementalAlterConfigsResponse(Response):  # type: ignore[misc]  # aiokafka is untyped
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


class _IncrementalAlterConfigs(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
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


class IncrementalAlterConfigsRequest(Request[_IncrementalAlterConfigs]):  # type: ignore[misc]  # aiokafka is untyped
    """Sets one setting of a group, and leaves its others as they are."""

    API_KEY = _ALTER_CONFIGS

    def __init__(self, group: str, name: str, value: str) -> None:
        self._resource = (_GROUP, group, [(name, _SET, value)])

    def build(
        self, request_struct_class: type[_IncrementalAlterConfigs]
    ) -> _IncrementalAlterConfigs:
        """The message on the wire."""
        return request_struct_class([self._resource], False)  # positional by protocol
