"""Members of groups: how many there are, and the eviction of those whose process is dead.

A group keeps the partitions of a killed member until its session has timed out, and a change of
coordinator begins that session anew. A process that is started again under the same name can
say earlier that its predecessor is dead, and so can a supervisor that saw it die: they send the
LeaveGroup that the member cannot send any more. Static membership would not do: it keeps
partitions with the dead member until the same one joins again, or the session has ended.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupIdNotFound, KafkaError, for_code
from aiokafka.protocol.group import LeaveGroupRequest

from pop_stream.kafka.hardening.internals import client_of, send_when_ready
from pop_stream.kafka.protocol import ShareGroupDescribeRequest
from pop_stream.model.definitions import GroupType
from pop_stream.settings import Settings

EVICTION_TIMEOUT_S: Final = 15.0
"""How long to wait for a group's coordinator: without it nobody could join the group either."""

INSTANCE_EVICTION_TIMEOUT_S: Final = 1.5
"""Short, as the successor soon joins the same groups, and by the same name."""

_RETRY_S: Final = 0.2
_KIND: Final = "consumer"

_log = structlog.get_logger()


def member_client_id(settings: Settings, client_id: str) -> str:
    """The client id of this process as a member of groups: with its instance name, if any."""
    return client_id if settings.instance is None else f"{client_id}@{settings.instance}"


async def evict_predecessor(admin: AIOKafkaAdminClient, group: str, client_id: str) -> None:
    """Remove the members of a group that have a client id; to be called before joining it.

    It raises nothing: if it fails, they are members until their sessions time out.

    Args:
        admin: Not yet started; closed at the end.
        group: Of the classic protocol, as all groups that aiokafka knows.
        client_id: As `member_client_id` made it; no live process may have it.
    """
    try:
        async with asyncio.timeout(EVICTION_TIMEOUT_S):
            await admin.start()
            while not await _is_done(admin, group, client_id):  # noqa: ASYNC110  # brokers send no event
                await asyncio.sleep(_RETRY_S)
    except (KafkaError, OSError, TimeoutError) as error:
        _log.info("predecessor.unknown", group=group, error=repr(error))
    finally:
        await admin.close()


async def evict_instance(admin: AIOKafkaAdminClient, instance: str) -> None:
    """Remove a dead process from all groups; for a supervisor, before it starts it again.

    The successor does the same, but only once it has started: this way the other members get
    the partitions earlier. It raises nothing, and gives up after a second or two.

    Args:
        admin: Not yet started; closed at the end.
        instance: The process's instance name, as in its settings.
    """
    try:
        async with asyncio.timeout(INSTANCE_EVICTION_TIMEOUT_S):
            await admin.start()
            for broker in client_of(admin).cluster.brokers():
                await _remove_from_groups(admin, broker.nodeId, f"@{instance}")
    except* (KafkaError, OSError, TimeoutError) as errors:
        _log.info("instance.not_evicted", instance=instance, error=repr(errors.exceptions[0]))
    finally:
        await admin.close()


async def _remove_from_groups(admin: AIOKafkaAdminClient, node: int, ending: str) -> None:
    """Remove it from the groups that one broker coordinates.

    Groups are described one by one: the client misreads an answer about several.
    """
    listed = await admin.list_consumer_groups([node])
    async with asyncio.TaskGroup() as tasks:
        for group, kind in listed:
            if kind == _KIND:
                tasks.create_task(_remove(admin, node, group, lambda one: one.endswith(ending)))


async def _is_done(admin: AIOKafkaAdminClient, group: str, client_id: str) -> bool:
    try:
        node = await admin.find_coordinator(group)
        await _remove(admin, node, group, lambda one: one == client_id)
    except KafkaError as error:
        _log.debug("predecessor.unanswered", group=group, error=repr(error))
        return not error.retriable
    return True


async def _remove(
    admin: AIOKafkaAdminClient, node: int, group: str, is_dead: Callable[[str], bool]
) -> None:
    """Have members leave whose client ids are those of dead processes; `node` coordinates."""
    (response,) = await admin.describe_consumer_groups([group], group_coordinator_id=node)
    for code, _, _, _, _, members, *_ in response.groups:
        _expect_none(code)
        for member_id, client_id in [member[:2] for member in members]:
            if is_dead(client_id):
                request = LeaveGroupRequest(group, member_id)
                answer = await client_of(admin).send(node, request)
                _expect_none(answer.error_code)
                _log.info("predecessor.removed", group=group, client_id=client_id)


def _expect_none(code: int) -> None:
    if code:
        raise for_code(code)


_UNKNOWN_GROUP = "Dead"


async def count_members(
    admin: AIOKafkaAdminClient, group: str, group_type: GroupType = "consumer"
) -> int | None:
    """How many members a group has now; None if there is no such group.

    A frozen or dead member counts until its session has timed out.

    Raises:
        KafkaError: If the brokers cannot be asked.
    """
    if group_type == "share":
        node, request = await admin.find_coordinator(group), ShareGroupDescribeRequest(group)
        response = await send_when_ready(admin, node, request)
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
