"""The scheduler in memory and the real one: the same submissions lead to the same picks."""

import pytest
from deadlines import within
from one_process import PATIENCE_S, one_process

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.puller import Handlers
from pop_stream.testing import InMemoryScheduler

TAKES = {"large": 30.0, "small": 12.0}
FLOOD, QUIET = 24, 12


def agenda(customer, kind, number):
    # Ranked: agendas of one list come from several partitions, in any order.
    return {
        "id": f"{customer}-{number}",
        "customer_id": customer,
        "rank": number,
        "operations": [{"name": "only", "type": kind}],
    }


LISTS = [
    [agenda("flood", "large", number) for number in range(FLOOD)],
    [agenda("quiet", "small", number) for number in range(QUIET)],
]
IDS = [one["id"] for agendas in LISTS for one in agendas]


def noting(order):
    """Handlers that take no time, are charged what they take in memory, and note the order."""
    handlers = Handlers()

    def add(kind):
        @handlers.handler(kind)
        async def work(call):
            order.append(call.agenda_id)
            call.charge(TAKES[kind])

    for kind in TAKES:
        add(kind)
    return handlers


async def picks_in_memory(definitions):
    async with InMemoryScheduler(noting([]), definitions=definitions, takes=TAKES) as scheduler:
        for agendas in LISTS:
            await scheduler.client.submit_many(agendas)
        await scheduler.run_until_idle()
        assert scheduler.unfinished == []
        return [one.agenda_id for one in scheduler.picks]


async def picks_on_kafka(settings, folder, definitions):
    """The order of runs, which is that of emissions: one agenda is out at a time."""
    order = []
    *others, insight = definitions
    paused = insight.model_copy(update={"paused": True})
    async with one_process(
        settings, folder, [*others, paused], noting(order), concurrency=1, within_s=300
    ) as system:
        for agendas, ready in zip(LISTS, (FLOOD, FLOOD + QUIET), strict=True):
            await system.post("/v1/agendas", agendas)
            await system.until("/v1/insights/media/queue", is_ready(ready))
        assert order == []
        async with connections.publisher(system.settings, client_id="test") as publisher:
            topics = Topics(system.settings.topic_prefix)
            await publish_definitions(publisher, topics, [insight], Definitions())
        async with within(PATIENCE_S):
            for one in IDS:
                await system.state(one, "succeeded")
    return order


def is_ready(number):
    return lambda queue: queue["ready"] == number


@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ["weighted_fair", "round_robin"])
async def test_a_flood_of_two_customers_is_picked_in_the_same_order(
    settings, tmp_path, algorithm
):
    insight = Insight(
        id="media",
        mappers=Mappers(operation_types=tuple(TAKES)),
        algorithm=algorithm,
        max_in_flight=1,
        partitions=1,
    )
    definitions = [Customer(id="flood"), Customer(id="quiet", weight=2), insight]
    expected = await picks_in_memory(definitions)
    assert (expected != IDS, sorted(expected)) == (True, sorted(IDS))
    assert await picks_on_kafka(settings, tmp_path, definitions) == expected
