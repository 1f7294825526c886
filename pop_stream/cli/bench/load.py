"""Submits a workload through Kafka, every agenda at its instant."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pop_stream.core.simulation.workload import Arrival
from pop_stream.ports.clock import Clock
from pop_stream.ports.wire import Publisher, Record

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
