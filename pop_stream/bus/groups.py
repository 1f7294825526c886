"""Who is a member of a consumer group, asked of the brokers."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupIdNotFound, for_code

_NEVER_WAS = "Dead"


async def count_members(admin: AIOKafkaAdminClient, group: str) -> int | None:
    """How many members a group has now; None if there is no such group.

    One that is frozen or dead counts until its session has ended.

    Raises:
        KafkaError: If the brokers do not say.
    """
    [response] = await admin.describe_consumer_groups([group])
    [(code, _, state, _, _, members, *_)] = response.groups
    error = for_code(code)
    if state == _NEVER_WAS or error is GroupIdNotFound:
        return None
    if code:
        raise error(group)
    return len(members)
