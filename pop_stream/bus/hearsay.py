"""Signs of life of attempts that nobody could look up, on their way to those who know them."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, NoReturn, Self

import structlog

from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import Claim, InsightAttemptsReported
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.wire import Publisher, Record

_EVERY_S: Final = 0.2
_AT_ONCE: Final = 500
_MOST: Final = 10_000

_log = structlog.get_logger()


class KafkaHearsay:
    """The port `Hearsay`, over `pop.ready`; passes on while entered.

    The relay cannot carry such a sign: events of an attempt count in its summary, so only one
    that is known to be its worker's may become an event.

    Args:
        topics: Names of topics.
        publisher: Open for as long as this object is.
        definitions: Tell which scheduler decides for an insight.
    """

    def __init__(
        self, topics: Topics, publisher: Publisher, definitions: DefinitionSource
    ) -> None:
        self._topics = topics
        self._publisher = publisher
        self._definitions = definitions
        self._waiting: dict[str, dict[Claim, None]] = {}
        self._has_some = asyncio.Event()
        self._running: asyncio.Task[NoReturn] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def pass_on(self, agenda_id: str, attempt: int, insights: Collection[str]) -> None:
        """See the port; above 10,000 of an insight at a time, some are left out."""
        sign = Claim(agenda_id, attempt)
        for insight_id in insights:
            signs = self._waiting.setdefault(insight_id, {})
            if len(signs) < _MOST:
                signs[sign] = None
        self._has_some.set()

    async def _run(self) -> NoReturn:
        while True:
            await self._has_some.wait()
            await asyncio.sleep(_EVERY_S)  # the same is said again and again
            self._has_some.clear()
            waiting, self._waiting = self._waiting, {}
            try:
                partitions = await self._publisher.partitions(self._topics.ready)
                await self._publisher.publish([*self._records(waiting, partitions)])
            except UnavailableError as error:
                # Without Kafka nobody is heard, so no lease ends either.
                _log.info("hearsay.dropped", error=str(error))

    def _records(
        self, waiting: Mapping[str, Mapping[Claim, None]], partitions: int
    ) -> Iterator[Record]:
        current = self._definitions.current
        for insight_id, signs in waiting.items():
            left = iter(signs)
            while some := tuple(islice(left, _AT_ONCE)):
                noted = InsightAttemptsReported(insight_id=insight_id, unverified=some)
                yield ready_record(self._topics, current, noted, partitions=partitions)
