"""Submits the agendas of the benchmarks, and drives a path with them.

`drive` keeps a closed loop, a burst or a fixed number outstanding, and samples how many have
ended. `submit` sends a scenario's agendas through Kafka, each at its instant. `Submitter`
produces whole batches, as fast as a Python producer can, and `NoopWorkload` makes agendas of
no-op operations of a given size.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import shake_128
from time import monotonic
from typing import Any, Final, Self

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaProducer
from pop_stream.lab.bench.figures import ProgressSample
from pop_stream.lab.bench.handlers import NOOP
from pop_stream.lab.simulator.workload import Arrival
from pop_stream.operations.errors import CommandError
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.settings import Settings

CHUNK_SIZE: Final = 500
"""Agendas that are handed over at once."""

SAMPLE_S: Final = 0.05
"""Between two looks at how many have ended."""

_STALL_TIMEOUT_S: Final = 60.0

Submit = Callable[[int, int], Awaitable[None]]
"""Submits agendas from a number on, so many; returns when they are on their way."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """How agendas are driven; both ways the loop is closed.

    Attributes:
        agendas: So many, as fast as Kafka takes them; 0 goes on until the time is over.
        seconds: So long, with at most `window` agendas submitted and not ended.
        window: Unbounded for a burst.
    """

    agendas: int = 0
    seconds: float = 0.0
    window: int = 1 << 62

    @property
    def loop(self) -> str:
        """In words, for a report."""
        if self.agendas:
            return f"burst: {self.agendas} agendas submitted as fast as Kafka acknowledges them"
        return f"closed: {self.window} agendas outstanding, for {self.seconds:g} s"


async def drive(
    submit: Submit, ended: Callable[[], Awaitable[int]], profile: LoadProfile
) -> list[ProgressSample]:
    """Submit until the pace is done, then wait until everything has ended.

    Args:
        submit: Where agendas go in.
        ended: How many have come out, ever; durable ones only.
        profile: How many, or how long.

    Returns:
        Samples in order, the first of before the submission, the last of after the end.

    Raises:
        CommandError: If nothing ends for a minute though something should.
    """
    driven = _Driver(profile, await ended())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(driven.feed(submit))
        tasks.create_task(driven.watch(ended))
    return driven.samples


class _Driver:
    def __init__(self, profile: LoadProfile, base: int) -> None:
        self._profile = profile
        self._base = base
        self._begin = monotonic()
        self._sent = 0
        self._is_fed = False
        self.samples = [ProgressSample(0.0, 0, 0)]

    async def feed(self, submit: Submit) -> None:
        while (room := self._room()) is not None:
            if room <= 0:
                await asyncio.sleep(SAMPLE_S / 5)
                continue
            first, self._sent = self._sent, self._sent + room
            await submit(first, room)
        self._is_fed = True

    async def watch(self, ended: Callable[[], Awaitable[int]]) -> None:
        moved_at = monotonic()
        while not self._is_fed or self.samples[-1].ended < self._sent:
            await asyncio.sleep(SAMPLE_S)
            count = await ended() - self._base
            one = ProgressSample(monotonic() - self._begin, self._sent, count)
            if count > self.samples[-1].ended:
                moved_at = monotonic()
            elif monotonic() - moved_at > _STALL_TIMEOUT_S:
                msg = f"only {count} of {self._sent} agendas have ended, none in a minute"
                raise CommandError(msg)
            self.samples.append(one)

    def _room(self) -> int | None:
        """How many may be submitted now; None once all were."""
        room = min(CHUNK_SIZE, self._profile.window - (self._sent - self.samples[-1].ended))
        if self._profile.agendas:
            left = self._profile.agendas - self._sent
            return min(room, left) if left else None
        is_over = monotonic() - self._begin >= self._profile.seconds
        return None if is_over else room


PARAM: Final = "bench"
"""The agenda's param that decides its insight."""

_AGENDAS_A_RECORD: Final = 100


@dataclass(frozen=True, slots=True)
class ScenarioLoad:
    """Agendas of one phase, for one insight.

    Attributes:
        prefix: Begins all ids.
        submitted_at: By agenda id, in seconds since the epoch; filled while submitting.
    """

    insight_id: str
    prefix: str
    arrivals: Sequence[Arrival]
    submitted_at: dict[str, float] = field(default_factory=dict)

    def agenda_id(self, number: int) -> str:
        """The id of the agenda with this number."""
        return f"{self.prefix}-{number}"

    def arrival(self, agenda_id: str) -> Arrival:
        """What was submitted under an id of this load."""
        return self.arrivals[int(agenda_id.removeprefix(f"{self.prefix}-"))]

    def body(self, number: int) -> Mapping[str, Any]:
        """The agenda with this number, as it is submitted: one `sleep` as long as it runs."""
        arrival = self.arrivals[number]
        operation = {"name": "s", "type": "sleep", "payload": {"seconds": arrival.runtime_s}}
        body: dict[str, Any] = {
            "id": self.agenda_id(number),
            "customer_id": arrival.customer_id,
            "params": {PARAM: self.insight_id},
            "operations": [operation],
        }
        if arrival.cost_s is not None:
            body["cost_s"] = arrival.cost_s
        if arrival.fairness_key:
            body["fairness_key"] = arrival.fairness_key
        return body


async def submit(load: ScenarioLoad, publisher: Publisher, topic: str, clock: Clock) -> None:
    """Submit everything when it is due, counted from now; returns when all is acknowledged.

    Agendas that are due together share records, as one producer's would.
    """
    now = asyncio.get_running_loop().time
    begin = now()
    number = 0
    async with asyncio.TaskGroup() as sending:
        while number < len(load.arrivals):
            await asyncio.sleep(max(0.0, begin + load.arrivals[number].at - now()))
            due = number
            while due < len(load.arrivals) and load.arrivals[due].at <= now() - begin:
                due += 1
            records = [
                _record(load, topic, range(first, min(first + _AGENDAS_A_RECORD, due)))
                for first in range(number, due, _AGENDAS_A_RECORD)
            ]
            sent_at = clock.now().timestamp()
            ids = (load.agenda_id(one) for one in range(number, due))
            load.submitted_at.update(dict.fromkeys(ids, sent_at))
            sending.create_task(publisher.publish(records))
            number = due


def _record(load: ScenarioLoad, topic: str, numbers: range) -> Record:
    bodies = [load.body(number) for number in numbers]
    value = json.dumps(bodies if len(bodies) > 1 else bodies[0]).encode()
    return Record(topic, load.agenda_id(numbers[0]).encode(), value)


Pair = tuple[bytes, bytes]
"""Key and value of a record."""


class Submitter:
    """An idempotent producer with acks=all that fills one partition's batch after the other.

    Args:
        settings: Where the cluster is.
        topic: Where to; it must exist.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._producer: KafkaProducer = clients.producer(settings, client_id="bench")
        self._partitions: list[int] = []
        self._next = 0

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._partitions = sorted(await self._producer.partitions_for(self._topic))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def send(self, pairs: Sequence[Pair]) -> list[asyncio.Future[object]]:
        """Hand over records; what is returned is done when they are acknowledged."""
        partition = self._partitions[self._next % len(self._partitions)]
        self._next += 1
        return await send_batches(self._producer, self._topic, partition, pairs)


async def send_batches(
    producer: KafkaProducer, topic: str, partition: int, pairs: Sequence[Pair]
) -> list[asyncio.Future[object]]:
    """Hand records of one partition over in as few batches as they fit in, in order.

    Costs a fraction of `producer.send`, which looks up topic, partition and batch for each.
    """
    waiting: list[asyncio.Future[object]] = []
    batch = producer.create_batch()
    for key, value in pairs:
        if batch.append(key=key, value=value, timestamp=None) is None:
            batch.close()
            waiting.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    if batch.record_count():
        batch.close()
        waiting.append(await producer.send_batch(batch, topic, partition=partition))
    return waiting


_PLACEHOLDERS_GROW: Final = 12
"""Characters that an id and a customer have more than what stands for them."""


@dataclass(frozen=True)
class NoopWorkload:
    """Makes agendas by number.

    Attributes:
        run: Begins all ids.
        insights: Taken in turn.
        customers: Taken in turn, after a round of insights.
        operations: Of each agenda; every one depends on the one before it.
        size: Bytes of each agenda, filled up in the first operation's payload; an agenda that
            is larger without it stays so.
        operation_type: Chooses the handler.
    """

    run: str
    insights: Sequence[str]
    customers: int = 1
    operations: int = 1
    size: int = 300
    operation_type: str = NOOP
    _templates: dict[str, str] = field(default_factory=dict, init=False)

    def agenda_id(self, number: int) -> str:
        """The id of the agenda with this number."""
        return f"{self.run}-{number}"

    def insight_id(self, number: int) -> str:
        """The insight of the agenda with this number."""
        return self.insights[number % len(self.insights)]

    def customer_id(self, number: int) -> str:
        """The customer of the agenda with this number."""
        return f"customer-{number // len(self.insights) % self.customers}"

    def body(self, number: int) -> bytes:
        """The agenda with this number, encoded."""
        insight_id = self.insight_id(number)
        template = self._templates.get(insight_id)
        if template is None:
            payload = "<payload>" if self._filling else None
            template = self._template(insight_id, payload=payload)
            self._templates[insight_id] = template
        agenda_id = self.agenda_id(number)
        text = template.replace("<id>", agenda_id, 1)
        text = text.replace("<customer>", self.customer_id(number), 1)
        if self._filling:
            # Different in each, and no more compressible than ids and numbers are.
            filling = shake_128(agenda_id.encode()).hexdigest(self._filling // 2)
            text = text.replace("<payload>", filling, 1)
        return text.encode()

    @cached_property
    def _filling(self) -> int:
        """Characters that are missing to the wanted size."""
        bare = len(self._template(self.insights[0], payload=""))
        return max(0, self.size - bare - _PLACEHOLDERS_GROW)

    def _template(self, insight_id: str, *, payload: str | None) -> str:
        operations: list[dict[str, Any]] = [
            {"name": f"o{number}", "type": self.operation_type}
            | ({"depends_on": [f"o{number - 1}"]} if number else {})
            for number in range(self.operations)
        ]
        body = {
            "id": "<id>",
            "customer_id": "<customer>",
            "params": {PARAM: insight_id},
            "operations": operations,
        }
        if payload is not None:
            operations[0]["payload"] = payload
        return json.dumps(body)
