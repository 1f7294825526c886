"""Places between two effects where a part is made to end, as by kill -9.

The product knows nothing of them: each is a decorator on the adapter of a port, put there
before the part is composed. `command` and `program` say how to start a part with one.

| place | done | not done |
|---|---|---|
| api.acknowledged | Kafka has the submission | the 202 |
| api.pulled | an agenda is claimed, and with the process of its caller | the answer |
| api.defined | a definition is committed | its record on `pop.definitions`, the answer |
| outbox.published | records of definitions are written | the outbox row's end |
| ingest.accepted | `agenda.accepted` is written | its page on `pop.ready` |
| ingest.routed | both are written | the commit |
| relay.published | what was translated is written | the commit |
| scheduler.emitting | half of a round is written | the rest of it, its row in the table |
| scheduler.emitted | a round is written | its row |
| scheduler.recorded | the row is written | the round |
| scheduler.recorded_half | the row and half of the round are written | the rest of it |
| scheduler.decided | the round is written, its row is handed over | the commit |
| puller.claimed | claims are written | the commit |
| puller.committed | the commit | the start |
| puller.ran | the operations | the report |
| rollup.folding | all statements of a batch | the end of the transaction |
| rollup.folded | the transaction | the commit to Kafka |
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any

from asyncpg.transaction import Transaction
from deadlines import within

from pop_stream.kafka.deliveries import KafkaHttpDeliveries
from pop_stream.kafka.publisher import ReconnectingPublisher
from pop_stream.kafka.share_consumer import ShareGroupConsumer
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaFailed,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.ports.publisher import Record
from pop_stream.postgres.definitions import PostgresDefinitions
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.puller.consuming.insight_consumer import ClaimCommitter
from pop_stream.settings import Settings

CRASH_POINTS = tuple(re.findall(r"^\| ([a-z_]+\.[a-z_]+) \|", __doc__, re.MULTILINE))
COMMAND_LINE = "from pop_stream.__main__ import main; main()"
ROWS_WITHIN_S = 5.0
ENDS = (AgendaSucceeded, AgendaFailed, AgendaStopped)

Publish = Callable[[Sequence[Record]], Awaitable[Any]]


def program(crash_point: str, fired_file: Path | None = None, then: str = COMMAND_LINE) -> str:
    """Python that puts one place into the process and runs a part.

    Args:
        crash_point: As in `scheduler.emitted:3`, which ends the process at the third pass.
        fired_file: Written before the end; while it is there nothing ends, so that the part
            may be started again in the same way.
        then: What to run.
    """
    arguments = f"{crash_point!r}, {str(fired_file) if fired_file else None!r}"
    return (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        f"import crash_points; crash_points.install({arguments}); {then}"
    )


def command(crash_point: str | None, fired_file: Path | None = None) -> tuple[str, ...]:
    """What stands before the arguments of `pop-stream`: with a place, or without one."""
    if crash_point is None:
        return (sys.executable, "-m", "pop_stream")
    return (sys.executable, "-c", program(crash_point, fired_file))


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class CrashPoint:
    """One place, and how often it is passed before the end.

    Args:
        asked: The place, and after a colon the pass, from 1; without one, the first.
        fired_file: File that is there once it has happened; None to happen in every process.
        terminate: Ends the process.
    """

    def __init__(
        self,
        asked: str,
        fired_file: Path | None = None,
        terminate: Callable[[], None] = kill_this_process,
    ) -> None:
        self.place, _, hits = asked.partition(":")
        self.passes_left = int(hits or "1")
        if self.place not in CRASH_POINTS or self.passes_left < 1:
            msg = f"no crash point: {asked!r}"
            raise ValueError(msg)
        self._fired_file = fired_file
        self._terminate = terminate

    @property
    def is_next(self) -> bool:
        """Whether the next pass is the end."""
        return self.passes_left == 1 and not (self._fired_file and self._fired_file.exists())

    def hit(self) -> None:
        """Count a pass, and end at the one that was asked for."""
        is_end = self.is_next
        self.passes_left -= 1
        if is_end:
            if self._fired_file is not None:
                self._fired_file.write_text(f"{self.place} {os.getpid()}\n")
            self._terminate()


class CrashingPublisher:
    """What a publisher does at a place; a decorator of the port's `publish`."""

    def __init__(self, point: CrashPoint, topics: Topics) -> None:
        self._point = point
        self._topics = topics
        self._are_rows_withheld = False
        self._rows_written = asyncio.Event()
        places = {
            "api.acknowledged": partial(self._after, self._is_on(topics.submissions)),
            "outbox.published": partial(self._after, self._is_on(topics.definitions)),
            "ingest.accepted": self._accepted_first,
            "ingest.routed": partial(self._after, self._is_accepted_and_routed),
            "relay.published": partial(self._after, self._is_relayed),
            "puller.claimed": partial(self._after, partial(self._carries, AgendaClaimed)),
            "puller.ran": self._before_ends,
        }
        self.publish = places.get(point.place, self._with_rounds)

    @staticmethod
    def decorates(place: str) -> bool:
        return place not in {
            "api.pulled", "api.defined", "puller.committed", "rollup.folding", "rollup.folded"
        }  # fmt: skip

    async def _after(
        self,
        is_meant: Callable[[Sequence[Record]], bool],
        publish: Publish,
        records: Sequence[Record],
    ) -> Any:
        done = await publish(records)
        if is_meant(records):
            self._point.hit()
        return done

    async def _accepted_first(self, publish: Publish, records: Sequence[Record]) -> Any:
        """Either may be first with the brokers; here it is what was accepted."""
        if self._is_accepted_and_routed(records):
            if self._point.is_next:
                await publish(
                    [one for one in records if one.topic == self._topics.agenda_events]
                )
            self._point.hit()
        return await publish(records)

    async def _before_ends(self, publish: Publish, records: Sequence[Record]) -> Any:
        for _ in self._events(records, ENDS):
            self._point.hit()
        return await publish(records)

    async def _with_rounds(self, publish: Publish, records: Sequence[Record]) -> Any:
        """Rounds and their rows are sent side by side; here one of them has to wait."""
        if any(one.topic.endswith("-changelog") for one in records):
            if self._are_rows_withheld:
                await asyncio.Event().wait()
            awaited, done = self._rows_written, await publish(records)
            awaited.set()
            return done
        emitted = [one for one in records if self._topics.is_insight_topic(one.topic)]
        if emitted and self._point.is_next and self._point.place != "scheduler.decided":
            await self._crash_in_round(publish, emitted)
            return await publish(records)
        done = await publish(records)
        if emitted:
            self._point.hit()
        return done

    async def _crash_in_round(self, publish: Publish, emitted: Sequence[Record]) -> None:
        match self._point.place:
            case "scheduler.emitting":
                self._are_rows_withheld = True
                await publish(emitted[: len(emitted) // 2 + 1])
            case "scheduler.emitted":
                self._are_rows_withheld = True
                await publish(emitted)
            case "scheduler.recorded" | "scheduler.recorded_half":
                # Those that are being sent already are of earlier rounds.
                self._rows_written = asyncio.Event()
                try:
                    async with within(ROWS_WITHIN_S):
                        await self._rows_written.wait()
                except TimeoutError:
                    return  # a round that is recovered writes none
                if self._point.place == "scheduler.recorded_half":
                    await publish(emitted[: len(emitted) // 2 + 1])
        self._point.hit()

    def _is_on(self, topic: str) -> Callable[[Sequence[Record]], bool]:
        return lambda records: any(one.topic == topic for one in records)

    def _is_accepted_and_routed(self, records: Sequence[Record]) -> bool:
        topics = {one.topic for one in records}
        return {self._topics.agenda_events, self._topics.ready} <= topics

    def _is_relayed(self, records: Sequence[Record]) -> bool:
        return {one.topic for one in records} == {self._topics.ready}

    def _carries(self, kind: type, records: Sequence[Record]) -> bool:
        return bool(self._events(records, (kind,)))

    def _events(self, records: Sequence[Record], kinds: tuple[type, ...]) -> list[Any]:
        return [
            event
            for record in records
            if record.topic == self._topics.agenda_events
            for event in decode_lifecycle(record.value)
            if isinstance(event, kinds)
        ]


def install(crash_point: str, fired_file: str | None = None) -> None:
    """Decorate the adapter that a place belongs to, for parts composed from now on."""
    point = CrashPoint(crash_point, Path(fired_file) if fired_file else None)
    if CrashingPublisher.decorates(point.place):
        _decorate_publishers(point)
    elif point.place == "rollup.folding":
        _decorate_transactions(point)
    else:
        _decorate_answers(point)


def _decorate_publishers(point: CrashPoint) -> None:

    decorator, publish = (
        CrashingPublisher(point, Topics(Settings().topic_prefix)),
        ReconnectingPublisher.publish,
    )

    @wraps(publish)
    async def decorated(self: ReconnectingPublisher, records: Sequence[Record]) -> Any:
        return await decorator.publish(partial(publish, self), records)

    ReconnectingPublisher.publish = decorated


def _decorate_answers(point: CrashPoint) -> None:
    """The end comes after a call that succeeded."""

    for adapter, method in {
        "api.pulled": [(KafkaHttpDeliveries, "poll")],
        "api.defined": [(PostgresDefinitions, "change")],
        "puller.committed": [(ClaimCommitter, "commit"), (ShareGroupConsumer, "acknowledge")],
        "rollup.folded": [(PostgresSummaries, "fold")],
    }[point.place]:
        setattr(adapter, method, _then_hit(point, getattr(adapter, method)))


def _then_hit(point: CrashPoint, call: Callable[..., Awaitable[Any]]) -> Any:
    @wraps(call)
    async def decorated(*args: Any, **kwargs: Any) -> Any:
        answer = await call(*args, **kwargs)
        if answer:
            point.hit()
        return answer

    return decorated


def _decorate_transactions(point: CrashPoint) -> None:
    """The end comes before the commit of a transaction in which summaries are folded."""

    is_folding = ContextVar("is_folding", default=False)
    fold, leave = PostgresSummaries.fold, Transaction.__aexit__

    @wraps(fold)
    async def folding(*args: Any) -> Any:
        is_folding.set(True)
        try:
            return await fold(*args)
        finally:
            is_folding.set(False)

    @wraps(leave)
    async def ending(self: Transaction, kind: Any, error: Any, trace: Any) -> None:
        if is_folding.get() and error is None:
            point.hit()
        await leave(self, kind, error, trace)

    PostgresSummaries.fold, Transaction.__aexit__ = folding, ending
