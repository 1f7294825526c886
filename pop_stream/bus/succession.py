"""Takes a dead predecessor out of a group, so that nobody waits for the end of its session.

A group gives the partitions of a member that was killed to nobody before its session has
passed, and after a change of coordinator a whole session passes anew. A process that is started
again under the same name knows better: who bore it before is dead.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.group import LeaveGroupRequest

from pop_stream.settings import Settings

WITHIN_S: Final = 15.0
"""How long a group is asked that has no coordinator: nobody could join it meanwhile either."""

_RETRY_S: Final = 0.2

_log = structlog.get_logger()


def named(settings: Settings, client_id: str) -> str:
    """The client id of a member of a group, with the process's name if it has one."""
    return client_id if settings.instance is None else f"{client_id}@{settings.instance}"


async def succeed(admin: AIOKafkaAdminClient, group: str, client_id: str) -> None:
    """Remove the members of a group that bear a client id; to be called before joining it.

    If that does not come about, they are members until their sessions have passed.

    Args:
        admin: Not yet started; closed at the end.
        group: Of the old protocol, as all groups that aiokafka knows.
        client_id: As `named` made it: nobody who lives has it.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            await admin.start()
            while not await _is_done(admin, group, client_id):  # noqa: ASYNC110  # others' doing
                await asyncio.sleep(_RETRY_S)
    except (KafkaError, OSError, TimeoutError) as error:
        _log.info("predecessor.unknown", group=group, error=repr(error))
    finally:
        await admin.close()


async def _is_done(admin: AIOKafkaAdminClient, group: str, client_id: str) -> bool:
    try:
        node = await admin.find_coordinator(group)
        for member_id in await _members(admin, node, group, client_id):
            answer = await admin._client.send(node, LeaveGroupRequest(group, member_id))  # noqa: SLF001
            _expect_none(answer.error_code)
            _log.info("predecessor.removed", group=group, client_id=client_id)
    except KafkaError as error:
        _log.debug("predecessor.unanswered", group=group, error=repr(error))
        return not error.retriable
    return True


async def _members(
    admin: AIOKafkaAdminClient, node: int, group: str, client_id: str
) -> Sequence[str]:
    (response,) = await admin.describe_consumer_groups([group], group_coordinator_id=node)
    found: list[str] = []
    for code, _, _, _, _, members, *_ in response.groups:
        _expect_none(code)
        found += [member_id for member_id, client, *_ in members if client == client_id]
    return found


def _expect_none(code: int) -> None:
    if code:
        raise for_code(code)
