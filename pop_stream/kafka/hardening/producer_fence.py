"""Keeps a producer from sending what its process may not write any more.

What was handed to the client may wait in it: for a connection, for another request's answer,
for an error to pass, or because the process is frozen. Whether it may still be written is
asked at the last moment, right before a request leaves.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

MayWrite = Callable[[str, float], bool | None]
"""Whether what was handed over at a moment (of `time.monotonic`) may be written to a topic;
None while that is not known, which is waited for."""

_ASK_AGAIN_S: Final = 0.02


class ProducerFencedError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped here
    """The process lost the right to write this; the client must be made anew."""


def fence(producer: AIOKafkaProducer, may: MayWrite) -> None:
    """Have a producer ask before each request, repeated ones too; before it is started.

    What may not be written fails with `ProducerFencedError`, and nothing that follows it on its
    partition is taken any more, for the broker would miss its number.
    """
    # There is no other place between the client's queues and its connections.
    sender = producer._sender  # noqa: SLF001
    send = sender._send_produce_req  # noqa: SLF001

    async def ask_and_send(node_id: int, batches: dict[Any, Any]) -> None:
        allowed = {tp: one for tp, one in batches.items() if await _may_send(may, tp, one)}
        for tp in batches.keys() - allowed.keys():
            batches[tp].failure(exception=ProducerFencedError())
            sender._muted_partitions.discard(tp)  # noqa: SLF001
        if allowed:
            await send(node_id, allowed)
        else:
            sender._in_flight.discard(node_id)  # noqa: SLF001

    sender._send_produce_req = ask_and_send  # noqa: SLF001


async def _may_send(may: MayWrite, tp: Any, batch: Any) -> bool:  # noqa: ANN401  # aiokafka is untyped
    since: float = batch._ctime  # noqa: SLF001
    while (answer := may(tp.topic, since)) is None:  # noqa: ASYNC110  # another thread hears
        await asyncio.sleep(_ASK_AGAIN_S)
    return answer
