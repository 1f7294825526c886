"""Asks the scheduler that decides for an insight, and waits for its answer."""

import asyncio
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Self

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from pop_stream.bus import clients
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnavailableError, UnreadableRecordError
from pop_stream.core.events import InsightAnswered, InsightAsked, decode_answer, value_of
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.wire import Publisher
from pop_stream.settings import Settings

ANSWER_WITHIN: Final = timedelta(seconds=3)
"""A scheduler that is up answers in milliseconds; one that is moving, in seconds."""

_log = structlog.get_logger()


class KafkaQuestions:
    """The port `Questions`: over `pop.ready` and back over `pop.answers`.

    Args:
        settings: Where the cluster is.
        publisher: Open for as long as this object is.
        definitions: Tell which scheduler to ask.
    """

    def __init__(
        self, settings: Settings, publisher: Publisher, definitions: DefinitionSource
    ) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._consumer: AIOKafkaConsumer = clients.consumer(
            settings,
            client_id="answers",
            group_id=None,
            auto_offset_reset="latest",
            fetch_max_wait_ms=clients.LONG_HELD_MS,
        )
        self._open: dict[str, asyncio.Future[InsightAnswered]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        partition = TopicPartition(self._topics.answers, 0)
        self._consumer.assign([partition])
        await self._consumer.seek_to_end(partition)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._consumer.stop()

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        held_after: int | None = None,
    ) -> InsightAnswered:
        """See the port."""
        question = InsightAsked(
            insight_id=insight_id,
            question_id=secrets.token_hex(8),
            agenda_id=agenda_id,
            agenda_ids=tuple(agenda_ids),
            held_after=held_after,
        )
        partitions = await self._publisher.partitions(self._topics.ready)
        record = ready_record(
            self._topics, self._definitions.current, question, partitions=partitions
        )
        answer: asyncio.Future[InsightAnswered] = asyncio.get_running_loop().create_future()
        self._open[question.question_id] = answer
        try:
            await self._publisher.publish([record])
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                return await answer
        except TimeoutError:
            msg = "the scheduler does not answer: it is down, or taking over partitions"
            raise UnavailableError(msg) from None
        finally:
            del self._open[question.question_id]

    async def _read(self) -> None:
        async for records in clients.read_for_good(self._consumer, what="answers"):
            for record in records:
                self._hear(record)

    def _hear(self, record: ConsumerRecord) -> None:
        try:
            answer = decode_answer(value_of(record))
        except UnreadableRecordError as error:
            _log.warning("answer.unreadable", reason=str(error))
            return
        waiting = self._open.get(answer.question_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
