"""Agendas for workers that pull over HTTP: asked for on `pop.pulls`, got on `pop.handouts`."""

import asyncio
import secrets
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, NoReturn, Self

import structlog
from aiokafka import ConsumerRecord

from pop_stream.bus.controls import controls
from pop_stream.bus.tail import Tail
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnavailableError, UnreadableRecordError, UnservedError
from pop_stream.core.events import (
    AgendaHanded,
    EmittedAgenda,
    PullRefused,
    PullReturned,
    PullWanted,
    StopReason,
    decode_handout,
    encode,
    value_of,
)
from pop_stream.core.pulls.handed import Handed
from pop_stream.core.pulls.stops import Stops
from pop_stream.ports.wire import Publisher, Record
from pop_stream.settings import Settings

_AGAIN_S: Final = 1.0
_FILL_S: Final = 0.02
_LOOK_S: Final = 0.5
_DISPATCHERS: Final = 8
_REFUSED_S: Final = 3.0
_RECALLED: Final = 5_000
"""Of what was handed out, and of what was to stop, before a process began. Its workers have no
other process to turn to, and the database may be away."""

RETURNED_BYTES: Final = 32 * 1024 * 1024
"""From there on, agendas whose callers have gone are left to come back by their leases."""

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Caller:
    count: int
    got: list[EmittedAgenda] = field(default_factory=list)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wanted(self) -> int:
        return self.count - len(self.got)


class KafkaHandouts:
    """The port `WorkDesk`; works while entered.

    Args:
        settings: Where the cluster is.
        publisher: Open for as long as this object is.
    """

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._api_id = secrets.token_hex(8)
        self._callers: dict[str, deque[_Caller]] = defaultdict(deque)
        self._received: dict[str, dict[str, int]] = defaultdict(dict)
        self._refused: dict[str, tuple[str, float]] = {}
        self._handed, self._stops = Handed(), Stops()
        self._news: set[str] = set()
        self._has_news = asyncio.Event()
        self._returned: asyncio.Queue[PullReturned] = asyncio.Queue()
        self._returned_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._tails = (
            Tail(
                settings,
                self._topics.handouts,
                client_id="handouts",
                hear=self._hear,
                newest=_RECALLED,
            ),
            controls(
                settings,
                client_id="api-controls",
                hear=self._stops.remember,
                newest=_RECALLED,
            ),
        )

    async def __aenter__(self) -> Self:
        running = (*(tail.run() for tail in self._tails), self._tell(), self._give_back())
        self._tasks = [asyncio.create_task(one) for one in running]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def take(
        self, insight_id: str, count: int, wait: timedelta, *, is_there: Callable[[], bool]
    ) -> list[EmittedAgenda]:
        """See the port."""
        caller = _Caller(count)
        self._callers[insight_id].append(caller)
        self._tell_of(insight_id)
        try:
            await self._until_some(insight_id, caller, wait, is_there)
            return caller.got
        finally:
            self._callers[insight_id].remove(caller)
            self._tell_of(insight_id)

    def give_back(self, emitted: EmittedAgenda) -> None:
        """See the port."""
        if self._returned_bytes > RETURNED_BYTES:
            _log.warning("handout.left_to_its_lease", agenda_id=emitted.agenda_id)
            return
        self._returned_bytes += len(emitted.agenda)
        returned = PullReturned(insight_id=emitted.insight_id, emitted=emitted)
        self._returned.put_nowait(returned)

    def lease(self, agenda_id: str) -> EmittedAgenda | None:
        """See the port."""
        return self._handed.of(agenda_id)

    def stop(self, agenda_id: str, attempt: int) -> StopReason | Literal["outdated"] | None:
        """See the port."""
        handed = self._handed.of(agenda_id)
        is_known = handed is not None and handed.attempt == attempt
        accepted_at = handed.accepted_at if handed is not None and is_known else None
        stop = self._stops.of(agenda_id, attempt, accepted_at)
        return None if stop is None else stop.reason

    async def _until_some(
        self, insight_id: str, caller: _Caller, wait: timedelta, is_there: Callable[[], bool]
    ) -> None:
        now = asyncio.get_running_loop().time
        until = now() + wait.total_seconds()
        if not self._tails[0].began.is_set() and not wait:
            msg = "agendas cannot be handed out yet: Kafka has not answered"
            raise UnavailableError(msg)
        while not caller.got and now() < until and is_there():
            self._expect_served(insight_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_S, until - now())):
                    await caller.some.wait()
        if not caller.got:
            self._expect_served(insight_id)
        if caller.got and caller.wanted:
            await asyncio.sleep(_FILL_S)  # those sent with the first arrive with it

    def _hear(self, record: ConsumerRecord) -> None:
        try:
            handed = decode_handout(value_of(record))
        except UnreadableRecordError as error:
            _log.warning("handout.unreadable", offset=record.offset, reason=str(error))
            return
        if isinstance(handed, PullRefused):
            self._refuse(handed)
            return
        self._handed.remember(handed.emitted)
        if handed.api_id == self._api_id:
            self._receive(handed)

    def _receive(self, handed: AgendaHanded) -> None:
        insight_id = handed.emitted.insight_id
        counts = self._received[insight_id]
        counts[handed.dispatcher_id] = counts.pop(handed.dispatcher_id, 0) + 1
        if len(counts) > _DISPATCHERS:
            del counts[next(iter(counts))]
        caller = next((one for one in self._callers[insight_id] if one.wanted > 0), None)
        if caller is None:
            self.give_back(handed.emitted)
        else:
            caller.got.append(handed.emitted)
            caller.some.set()
        self._tell_of(insight_id)

    def _refuse(self, refused: PullRefused) -> None:
        if not self._tails[0].began.is_set():
            return  # told before this process began
        until_s = asyncio.get_running_loop().time() + _REFUSED_S
        self._refused[refused.insight_id] = (refused.reason, until_s)
        for caller in self._callers.get(refused.insight_id, ()):
            caller.some.set()

    def _expect_served(self, insight_id: str) -> None:
        reason, until_s = self._refused.get(insight_id, ("", 0.0))
        if asyncio.get_running_loop().time() < until_s:
            raise UnservedError(reason)

    def _tell_of(self, insight_id: str) -> None:
        self._news.add(insight_id)
        self._has_news.set()

    async def _tell(self) -> NoReturn:
        """Say what is wanted whenever it changes, and every second while anything is."""
        # What is handed out before can no longer be heard, and its lease would run out.
        await self._tails[0].began.wait()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self._has_news.wait()
            self._has_news.clear()
            news, self._news = self._news, set()
            news.update(insight_id for insight_id, some in self._callers.items() if some)
            if wanted := [self._wanted(insight_id) for insight_id in news]:
                await self._publish({one.insight_id: one for one in wanted})

    def _wanted(self, insight_id: str) -> PullWanted:
        callers = self._callers[insight_id]
        if not callers:
            del self._callers[insight_id]
        return PullWanted(
            insight_id=insight_id,
            api_id=self._api_id,
            wanted=sum(max(0, one.wanted) for one in callers),
            received=dict(self._received[insight_id]),
        )

    async def _give_back(self) -> NoReturn:
        while True:
            returned = await self._returned.get()
            await self._publish({returned.insight_id: returned})
            self._returned_bytes -= len(returned.emitted.agenda)

    async def _publish(self, events: "dict[str, PullWanted] | dict[str, PullReturned]") -> None:
        records = [
            Record(self._topics.pulls, insight_id.encode(), encode(event))
            for insight_id, event in events.items()
        ]
        try:
            await self._publisher.publish(records)
        except UnavailableError as error:
            # What is wanted is said again; what was to be returned comes back by its lease.
            _log.warning("pulls.unavailable", error=str(error))
