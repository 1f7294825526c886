"""The load of a chaos run: several customers, over HTTP and over Kafka, at a steady rate."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate, pairwise
from random import Random
from typing import Any, Final

from pop_stream.api_models.submissions import SubmissionResults
from pop_stream.client.client import Client
from pop_stream.client.errors import ApiError
from pop_stream.client.transport import Retry
from pop_stream.clock import WallClock
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.lab.chaos.handlers import WORK
from pop_stream.model.retry import Backoff
from pop_stream.ports.publisher import Publisher, Record

CUSTOMERS: Final[Mapping[str, int]] = {"flood": 6, "anna": 2, "bruno": 1, "carla": 1}
"""Their parts of the load."""

INSIGHTS: Final = ("chaos-a", "chaos-b")
PARAM: Final = "chaos"

_EVERY_S: Final = 0.25
_SHORT_S: Final = (0.0, 0.05)
_LONG_S: Final = (0.5, 3.0)
_LONG_SHARE: Final = 0.03

RETRY: Final = Retry(
    within=timedelta(seconds=120), backoff=Backoff(first_s=0.3, factor=1, most_s=0.3)
)
"""Of the client that the load is submitted by."""


@dataclass(slots=True)
class ChaosLoad:
    """What is submitted.

    Attributes:
        prefix: Begins all agenda ids.
        acknowledged: Agendas that were answered with 202, or that Kafka has acknowledged, with
            when, in seconds since the epoch.
        refused: Agendas that were refused for good, with the answer.
    """

    prefix: str
    seed: int
    rate_per_s: float
    seconds: float
    acknowledged: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def note(self, *agenda_ids: str) -> None:
        """Record agendas as acknowledged now."""
        now_s = WallClock().now().timestamp()
        self.acknowledged |= dict.fromkeys(agenda_ids, now_s)

    def batches(self) -> Sequence[Sequence[Mapping[str, Any]]]:
        """All agendas, by the batches they are sent in; the same for the same seed."""
        chance = Random(self.seed)  # noqa: S311  # a workload, no secret
        total = max(1, int(self.rate_per_s * self.seconds))
        agendas = [self._agenda(chance, number) for number in range(total)]
        count = max(1, int(self.seconds / _EVERY_S))
        ends = [total * number // count for number in range(count + 1)]
        return [agendas[first:last] for first, last in pairwise(ends)]

    def _agenda(self, chance: Random, number: int) -> Mapping[str, Any]:
        names = list(CUSTOMERS)
        customer = chance.choices(names, cum_weights=[*accumulate(CUSTOMERS.values())])[0]
        insight = INSIGHTS[chance.random() < 1 / 3]
        count = 3 if insight == INSIGHTS[1] else 1
        operations = [
            {
                "name": f"o{place}",
                "type": WORK,
                "payload": _seconds(chance) / count,
                **({"depends_on": [f"o{place - 1}"]} if place else {}),
            }
            for place in range(count)
        ]
        return {
            "id": f"{self.prefix}-{number}",
            "customer_id": customer,
            "params": {PARAM: insight},
            "priority": chance.randint(1, 9),
            "operations": operations,
        }


async def submit(load: ChaosLoad, api: Client, publisher: Publisher, topic: str) -> None:
    """Submit everything when it is due; returns when all is acknowledged or refused.

    Every other batch goes by HTTP; a client tries again, with the same ids, for as long as
    it does not know.
    """
    now = asyncio.get_running_loop().time
    began = now()
    batches = [one for one in load.batches() if one]
    pace_s = load.seconds / len(batches)
    async with asyncio.TaskGroup() as tasks:
        for number, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, began + number * pace_s - now()))
            if number % 2:
                tasks.create_task(_by_http(load, api, batch))
            else:
                tasks.create_task(_by_kafka(load, publisher, topic, batch))


async def _by_http(load: ChaosLoad, api: Client, batch: Sequence[Mapping[str, Any]]) -> None:
    try:
        answer = await api.submit_many(batch)
    except ApiError as error:
        load.refused |= dict.fromkeys((one["id"] for one in batch), str(error))
    else:
        _note(load, batch, answer)


def _note(
    load: ChaosLoad, batch: Sequence[Mapping[str, Any]], answer: SubmissionResults
) -> None:
    for result in answer.results:
        if result.id and not result.issues:
            load.note(result.id)
        else:
            load.refused[batch[result.index]["id"]] = str(result.issues)


async def _by_kafka(
    load: ChaosLoad, publisher: Publisher, topic: str, batch: Sequence[Mapping[str, Any]]
) -> None:
    records = [Record(topic, one["id"].encode(), json.dumps(one).encode()) for one in batch]
    await publish_until_acknowledged(publisher, records)
    load.note(*(one["id"] for one in batch))


def _seconds(chance: Random) -> float:
    return chance.uniform(*(_LONG_S if chance.random() < _LONG_SHARE else _SHORT_S))
