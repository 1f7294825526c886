"""Who is a member of a group, asked of the brokers."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupIdNotFound, for_code

from pop_stream.bus.share_requests import ShareGroupDescribeRequest
from pop_stream.core.definitions.definitions import GroupType

_UNKNOWN_GROUP = "Dead"


async def count_members(
    admin: AIOKafkaAdminClient, group: str, group_type: GroupType = "consumer"
) -> int | None:
    """How many members a group has now; None if there is no such group.

    One that is frozen or dead counts until its session has ended.

    Raises:
        KafkaError: If the brokers do not say.
    """
    if group_type == "share":
        node, request = await admin.find_coordinator(group), ShareGroupDescribeRequest(group)
        response = await admin._send_request_to_node(node, request)  # noqa: SLF001
        [(code, _, _, state, _, _, _, members, *_)] = response.groups
    else:
        [response] = await admin.describe_consumer_groups([group])
        [(code, _, state, _, _, members, *_)] = response.groups
    error = for_code(code)
    if state == _UNKNOWN_GROUP or error is GroupIdNotFound:
        return None
    if code:
        raise error(group)
    return len(members)
