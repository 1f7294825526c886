"""Takes a dead predecessor out of a group, so that nobody waits for the end of its session.

A group gives the partitions of a member that was killed to nobody before its session has
passed, and after a change of coordinator a whole session passes anew. A process that is started
again under the same name knows better: who bore it before is dead.

Who is a member of a group, asked of the brokers.
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
"""How long a group is asked that has no coordinator: nobody could join it meanwhile either."""

INSTANCE_EVICTION_TIMEOUT_S: Final = 1.5
"""How long groups are told of a death: its successor soon joins them, and by the same name."""

_RETRY_S: Final = 0.2
_KIND: Final = "consumer"

_log = structlog.get_logger()


def member_client_id(settings: Settings, client_id: str) -> str:
    """The client id of a member of a group, with the process's name if it has one."""
    return client_id if settings.instance is None else f"{client_id}@{settings.instance}"


async def evict_predecessor(admin: AIOKafkaAdminClient, group: str, client_id: str) -> None:
    """Remove the members of a group that bear a client id; to be called before joining it.

    If that does not come about, they are members until their sessions have passed.

    Args:
        admin: Not yet started; closed at the end.
        group: Of the old protocol, as all groups that aiokafka knows.
        client_id: As `member_client_id` made it: nobody who lives has it.
    """
    try:
        async with asyncio.timeout(EVICTION_TIMEOUT_S):
            await admin.start()
            while not await _is_done(admin, group, client_id):  # noqa: ASYNC110  # others' doing
                await asyncio.sleep(_RETRY_S)
    except (KafkaError, OSError, TimeoutError) as error:
        _log.info("predecessor.unknown", group=group, error=repr(error))
    finally:
        await admin.close()


async def evict_instance(admin: AIOKafkaAdminClient, instance: str) -> None:
    """Remove a process from all groups; for who saw it die, before it is started again.

    Its successor does the same for its own groups, but only once it has started, and the other
    members' work need not wait for that.

    Args:
        admin: Not yet started; closed at the end.
        instance: The process's name, as in its settings.
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
    """Those that a broker coordinates; asked one by one, for answers on several are misread."""
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
    """Have the members leave whose client ids are dead ones'; `node` coordinates the group."""
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

    One that is frozen or dead counts until its session has ended.

    Raises:
        KafkaError: If the brokers do not say.
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
