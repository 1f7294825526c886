"""Follows a small compacted topic of states: the last row of each key, once it is written."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final, Generic, Self, TypeVar

import structlog

from pop_stream.background import ExitReason, background
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

_log = structlog.get_logger()

_CATCH_UP_TIMEOUT_S: Final = 5.0
_FROM_THE_START: Final = datetime(1970, 1, 2, tzinfo=UTC)

T = TypeVar("T")


class StateRows(Generic[T]):
    """The last row of every key, kept as it is written, some 200 bytes each.

    Works while entered; entering waits for what is there, for seconds at most.

    Args:
        settings: Where the cluster is.
        topic: Of one partition.
        decode: Reads a row; raises UnreadableRecordError.
        client_id: Shown in the broker's logs.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        decode: Callable[[bytes], T],
        *,
        client_id: str,
    ) -> None:
        self._rows: dict[str, bytes] = {}
        self._topic = topic
        self._decode = decode
        self._follower = TopicFollower(
            settings,
            topic,
            client_id=client_id,
            on_record=self._on_record,
            since=_FROM_THE_START,
        )
        self._background = AsyncExitStack()

    def get(self, key: str) -> T | None:
        """The row of a key, as of a moment ago; None while nothing is written of it."""
        row = self._rows.get(key)
        return None if row is None else self._decode(row)

    def starting_with(self, prefix: str) -> Sequence[T]:
        """The rows of all keys that start so."""
        return [self._decode(row) for key, row in self._rows.items() if key.startswith(prefix)]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            following = background(state_rows=self._follower.run())
            await opening.enter_async_context(following)
            try:
                async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                    await self._follower.catch_up()
            except TimeoutError:
                # The rest comes while requests are answered.
                _log.warning("states.late", topic=self._topic, waited_s=_CATCH_UP_TIMEOUT_S)
            self._background = opening.pop_all()
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        await self._background.__aexit__(*reason)

    def _on_record(self, record: ConsumedRecord) -> None:
        key = (record.key or b"").decode(errors="replace")
        try:
            value = checked_value(record)
            if value is None:
                self._rows.pop(key, None)
            else:
                self._decode(value)
                self._rows[key] = value
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
