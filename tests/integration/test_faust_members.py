"""What Faust's member of a group comes through here, and would not by itself."""

import asyncio
from dataclasses import dataclass

import pytest
from aiokafka.errors import KafkaError
from consumer_group_members import WITHIN_S, until_assigned, work_topic
from deadlines import within
from faust.types import TP

from pop_stream.kafka import clients
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.scheduler.faust.client_internals import rejoin_on_error


@pytest.mark.parametrize("step", ["_do_heartbeat", "ensure_coordinator_known"])
async def test_an_error_that_nobody_takes_ends_in_a_new_membership(settings, step):
    topic = await work_topic(settings)
    async with clients.consumer(
        settings, topic, client_id="m", group_id=f"{topic}.g", heartbeat_interval_ms=100
    ) as member:
        await until_assigned(member, 2)
        coordinator = member._coordinator
        rejoin_on_error(coordinator)
        before, intact = coordinator.generation, getattr(coordinator, step)

        async def fail_once():
            setattr(coordinator, step, intact)
            msg = "of a kind that the client cannot mend"
            raise KafkaError(msg)

        setattr(coordinator, step, fail_once)
        # Nobody calls getone or getmany, as Faust does not.
        async with within(WITHIN_S):
            while coordinator.generation == before or not member.assignment():  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.05)


@dataclass(eq=False)
class Handled:
    """As much of one of Faust's messages as its consumer looks at."""

    tp: TP
    offset: int
    topic: str = "ready"
    acked: bool = False


async def test_records_that_faust_lost_in_a_rebalance_keep_no_later_ones_uncommitted(settings):
    app = faust_app(settings)
    app.finalize()
    app.topics._acking_topics.add("ready")
    consumer, place = app.consumer, TP("ready", 5)
    consumer._committed_offset[place] = 20

    def acknowledge(*offsets):
        for offset in offsets:
            consumer.ack(Handled(place, offset))
        return consumer._filter_committable_offsets({place})

    assert acknowledge(22, 23) == {place: 24}  # 20 and 21 were dropped from its queues
    await consumer._add_gap(place, 24, 26)
    assert acknowledge() == {}
    assert acknowledge(27) == {place: 28}
    consumer._committed_offset[place] = 28
    assert acknowledge(25) == {}  # one that comes late sets nothing back
