"""Follows `pop.timekeeper`: up to where each schedule has come, as far as it is written."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final, Self

import structlog

from pop_stream.background import ExitReason, background
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_schedule_state
from pop_stream.model.events.occasions import ScheduleState
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

_log = structlog.get_logger()

_CATCH_UP_TIMEOUT_S: Final = 5.0
_FROM_THE_START: Final = datetime(1970, 1, 2, tzinfo=UTC)


class ScheduleStates:
    """The last row of every schedule, kept as it is written, some 200 bytes each.

    Works while entered; entering waits for what is there, for seconds at most.
    """

    def __init__(self, settings: Settings) -> None:
        self._rows: dict[str, bytes] = {}
        self._follower = TopicFollower(
            settings,
            Topics(settings.topic_prefix).timekeeper,
            client_id="schedule-states",
            on_record=self._on_record,
            since=_FROM_THE_START,
        )
        self._background = AsyncExitStack()

    def get(self, schedule_id: str) -> ScheduleState | None:
        """Where a schedule has come to, a moment ago; None while nothing is written of it."""
        row = self._rows.get(schedule_id)
        return None if row is None else decode_schedule_state(row)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            following = background(schedule_states=self._follower.run())
            await opening.enter_async_context(following)
            try:
                async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                    await self._follower.catch_up()
            except TimeoutError:
                # The rest comes while requests are answered.
                _log.warning("schedule_states.late", waited_s=_CATCH_UP_TIMEOUT_S)
            self._background = opening.pop_all()
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        await self._background.__aexit__(*reason)

    def _on_record(self, record: ConsumedRecord) -> None:
        schedule_id = (record.key or b"").decode(errors="replace")
        try:
            value = checked_value(record)
            if value is None:
                self._rows.pop(schedule_id, None)
            else:
                decode_schedule_state(value)
                self._rows[schedule_id] = value
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
