"""A publisher that may be used before the broker is there, and mends itself."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Self

import structlog
from aiokafka.errors import KafkaError

from pop_stream.bus.publisher import KafkaPublisher
from pop_stream.core.errors import UnavailableError
from pop_stream.ports.wire import Record, RecordMetadata

_START_S: Final = 15.0
_STOP_S: Final = 5.0

_log = structlog.get_logger()


class ReconnectingPublisher:
    """The port `Publisher`, on a producer that is started when it is first needed.

    An idempotent producer numbers its records. Once one was given up that had its number,
    the broker refuses all that follow on its partition, for good; then a new producer takes
    over. While the broker is merely away, the same one goes on trying.

    Args:
        make: Makes a publisher that is not started.
    """

    def __init__(self, make: Callable[[], KafkaPublisher]) -> None:
        self._make = make
        self._current: KafkaPublisher | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, records: Sequence[Record]) -> Sequence[RecordMetadata]:
        """Write all records and wait for every acknowledgement; see the port."""
        publisher = await self._started()
        try:
            return await publisher.publish(records)
        except UnavailableError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaError) and not cause.retriable:
                await self._replace(publisher, cause)
            raise

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        return await (await self._started()).partitions(topic)

    async def ping(self) -> None:
        """Have a broker answer; see the port."""
        await (await self._started()).ping()

    async def close(self) -> None:
        """Stop; what was not acknowledged within seconds is given up."""
        publisher, self._current = self._current, None
        if publisher is not None:
            await _stop(publisher)

    async def _started(self) -> KafkaPublisher:
        if self._current is not None:
            return self._current
        async with self._starting:
            if self._current is None:
                self._current = await self._start()
            return self._current

    async def _start(self) -> KafkaPublisher:
        publisher = self._make()
        try:
            async with asyncio.timeout(_START_S):
                return await publisher.__aenter__()
        except (KafkaError, TimeoutError, OSError) as error:
            await _stop(publisher)
            msg = f"Kafka is not to be reached: {error!r}"
            raise UnavailableError(msg) from error
        except BaseException:
            await _stop(publisher)
            raise

    async def _replace(self, publisher: KafkaPublisher, cause: KafkaError) -> None:
        if self._current is publisher:
            self._current = None
            _log.warning("producer.replaced", error=repr(cause))
            await _stop(publisher)


async def _stop(publisher: KafkaPublisher) -> None:
    # The client waits for the broker to take what is buffered, however long it is away.
    try:
        async with asyncio.timeout(_STOP_S):
            await publisher.__aexit__()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("producer.abandoned", error=repr(error))
