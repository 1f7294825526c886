"""The protocol message that asks for the committed offsets of many groups at once.

OffsetFetch version 8 (KIP-709); aiokafka itself knows it up to version 3, one group each.
"""

from collections.abc import Sequence
from typing import Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_OFFSET_FETCH: Final = 9
_VERSION: Final = 8


class OffsetFetchResponseV8(Response):  # type: ignore[misc]  # aiokafka is untyped
    """By group and topic: partition, committed offset (-1 for none), and an error code."""

    API_KEY = _OFFSET_FETCH
    API_VERSION = _VERSION
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
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", CompactString("utf-8")),
                                ("error_code", Int16),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("error_code", Int16),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _OffsetFetchRequestV8(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    FLEXIBLE_VERSION = True
    API_KEY = _OFFSET_FETCH
    API_VERSION = _VERSION
    RESPONSE_TYPE = OffsetFetchResponseV8
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
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class ManyOffsetsRequest(Request[_OffsetFetchRequestV8]):  # type: ignore[misc]  # as above
    """Asks one coordinator for all committed offsets of its groups.

    Args:
        groups: Their ids; each must have this broker as its coordinator.
    """

    API_KEY = _OFFSET_FETCH

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_OffsetFetchRequestV8]) -> _OffsetFetchRequestV8:
        """The message on the wire; no topics means all topics."""
        groups: list[tuple[str, None, dict[int, bytes]]]
        groups = [(group, None, {}) for group in self._groups]
        return request_struct_class(groups, False, {})  # positional by protocol
