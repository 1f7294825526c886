"""Share groups (KIP-932), as brokers know them: where they start, how far they have come."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code

from pop_stream.bus.group_requests import DescribeShareGroupOffsetsRequest
from pop_stream.bus.share_requests import IncrementalAlterConfigsRequest


async def start_at_earliest(admin: AIOKafkaAdminClient, group: str) -> None:
    """Have a share group begin with the first record of a topic that is new to it.

    Without it, it begins with what comes after its first member. Harmless if repeated.

    Raises:
        KafkaError: If the broker refuses: it has no share groups, or forbids it.
    """
    request = IncrementalAlterConfigsRequest(group, "share.auto.offset.reset", "earliest")
    response = await admin._send_request(request)  # noqa: SLF001
    for code, message, _, _ in response.responses:
        if code:
            msg = f"share group {group}: {message}"
            raise for_code(code)(msg)


class ShareGroupOffset(NamedTuple):
    """How far a share group has come with a partition.

    Attributes:
        start: The first record that may not be done with. What is done with before the next
            answer of a member shows late in it.
        lag: Records that are not done with, wherever they lie past it. Of those that members
            were done with in one moment, the broker may count some only with the next one.
    """

    start: int
    lag: int


async def fetch_share_offsets(
    admin: AIOKafkaAdminClient, node: int, groups: Sequence[str]
) -> Mapping[str, Mapping[TopicPartition, ShareGroupOffset]]:
    """How far share groups have come with the partitions that they have begun to read.

    Args:
        admin: Started.
        node: Coordinator of the groups.
        groups: Their ids; those of which the node cannot tell are left out.
    """
    response = await admin._client.send(node, DescribeShareGroupOffsetsRequest(groups))  # noqa: SLF001
    return {
        group: _share_offsets(topics)
        for group, topics, code, _, _ in response.groups
        if not code
    }


def _share_offsets(topics: Sequence[Any]) -> dict[TopicPartition, ShareGroupOffset]:
    return {
        TopicPartition(name, partition): ShareGroupOffset(start, lag)
        for name, _, partitions, _ in topics
        for partition, start, _, lag, code, _, _ in partitions
        if not code and start >= 0
    }
