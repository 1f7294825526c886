"""One thing after another is taken away from a whole system under load, and given back."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random

import aiohttp
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError
from deadlines import scaled, within
from whole_system import (
    LOOK_S,
    WITHIN_S,
    WholeSystem,
    agenda,
    family,
    running,
)

from pop_stream.clock import WallClock
from pop_stream.kafka import connections
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.lab.chaos.handlers import WORK

pytestmark = pytest.mark.timeout(200)

SKEWED = Path(__file__).parents[1] / "support" / "skewed_clock.py"
MINUTE_S = 60.0
RESUMES_S = 6.0
"""Beyond a dead member's session: the group settles, and the table is read. With five times as
much to run as there are cores, 1.5 to 2.8 s were seen."""


@pytest_asyncio.fixture(scope="module")
async def system() -> AsyncIterator[WholeSystem]:
    with pytest.MonkeyPatch.context() as patch:
        async with running(patch, copies={"scheduler": 2}) as system:
            yield system


class Postgres:
    """The server, taken away in one of two ways: nobody listens, or nobody answers."""

    def __init__(self, system, how):
        self._servers = system.stack.servers
        self._how = how
        self._frozen = []

    async def __aenter__(self):
        if self._how == "stopped":
            await self._servers.take_down("postgres", orderly=True)
            return
        self._frozen = family(self._servers.processes["postgres"])
        for one in self._frozen:
            one.send_signal(signal.SIGSTOP)

    async def __aexit__(self, *_):
        for one in reversed(self._frozen):
            one.send_signal(signal.SIGCONT)
        if self._how == "stopped":
            await self._servers.bring_back("postgres")


async def reads_are_503(system, agenda_id):
    one = f"/v1/agendas/{agenda_id}"
    for answer in await asyncio.gather(
        *map(system.get, (one, f"{one}/progress", "/v1/agendas"))
    ):
        status, headers, problem = answer
        assert (status, problem["code"]) == (503, "unavailable")
        assert int(headers["Retry-After"]) > 0


@pytest.mark.parametrize(("how", "at_least_s"), [("stopped", MINUTE_S), ("frozen", 0.0)])
async def test_without_postgres_all_but_reads_goes_on_and_summaries_catch_up_once(
    system, how, at_least_s
):
    url, clock = "http://127.0.0.1:9/is-never-called", WallClock()
    async with system.load(f"pg-{how}", callback_url=url) as load:
        await system.more_started(load.run, 10)
        async with Postgres(system, how):
            gone_at = clock.now().timestamp()
            # Submitted, scheduled, pulled and run, all of it after Postgres was gone.
            await system.more_started(load.run, 80)
            await reads_are_503(system, next(iter(load.acknowledged)))
            await system.more_started(load.run, 80)
            while clock.now().timestamp() - gone_at < at_least_s:
                await system.more_started(load.run, 40)
            back_at = clock.now().timestamp()
            await reads_are_503(system, next(iter(load.acknowledged)))
        submitted = len(load.acknowledged)
    meanwhile = [one.at for one in system.starts(load.run) if gone_at <= one.at <= back_at]
    gaps = [after - before for before, after in pairwise([gone_at, *meanwhile, back_at])]
    assert max(gaps) < scaled(10)
    assert submitted > at_least_s * 8
    await system.kept(load)
    owed = await system.fetch(
        "select agenda_id, count(*) as times from webhooks "
        "where starts_with(agenda_id, $1) group by agenda_id",
        load.run,
    )
    assert {one["agenda_id"]: one["times"] for one in owed} == dict.fromkeys(
        load.acknowledged, 1
    )


async def test_a_puller_frozen_past_its_lease_is_replaced_and_what_it_says_is_fenced(system):
    ids = [f"frozen-{number}" for number in range(8)]
    operation = {"name": "only", "type": WORK, "payload": system.lease_s + 3}
    await system.submit(*(agenda(one, operations=[operation]) for one in ids))
    await system.until(lambda: len(system.starts("frozen-")) == len(ids))
    pid = system.send("puller-1", signal.SIGSTOP)
    try:
        taken = {one.agenda_id for one in system.starts("frozen-") if one.pid == pid}
        assert taken
        await system.until(lambda: taken <= begun(system, "frozen-", attempt=2).keys())
        before = await system.events("frozen-")
    finally:
        system.send("puller-1", signal.SIGCONT)
    rows = await system.ended("frozen-", ids)
    late = [one for one in await system.events("frozen-") if one not in before]
    assert [one for one in late if one.get("attempt") == 1 and one["agenda_id"] in taken]
    for one in ids:
        row, attempts = rows[one], 2 if one in taken else 1
        assert (row["state"], row["attempt"]) == ("succeeded", attempts)
        assert len(json.loads(row["history"] or b"[]")) == attempts - 1
        assert f".{begun(system, one, attempt=attempts)[one]}." in row["puller_id"]
    starts = [(one.agenda_id, one.attempt) for one in system.starts("frozen-")]
    assert len(starts) == len(set(starts)) == len(ids) + len(taken)


def begun(system, run, *, attempt):
    """The process that started this attempt, by agenda."""
    return {one.agenda_id: one.pid for one in system.starts(run) if one.attempt == attempt}


async def test_schedulers_come_and_go_while_saturated_without_loss_or_long_stall(system):
    async with system.load("rebalance") as load:
        await system.more_started(load.run, 10)
        for how in (signal.SIGTERM, signal.SIGKILL):
            for part in ("scheduler-2", "scheduler"):
                # It is started again at once, and the next one goes once it has joined.
                joined = log_of(system, part).count("scheduler.started")
                system.send(part, how)
                await system.more_started(load.run, 60)
                await system.until(
                    lambda part=part, joined=joined: (
                        log_of(system, part).count("scheduler.started") > joined
                    )
                )
        began = system.starts(load.run)
    await system.kept(load)
    assert max(b.at - a.at for a, b in pairwise(began)) < system.session_s + scaled(RESUMES_S)


def log_of(system, part):
    return system.supervisor.log_file(part).read_text()


async def test_what_is_delivered_twice_and_in_any_order_changes_nothing(system):
    names = system.names
    topics = (names.agenda_events, names.ready, names.insight("work"))
    async with system.load("twice") as load:
        await system.more_started(load.run, 40)
        assert (await system.deliver_again(load.run, *topics)).total() > 40
        await system.more_started(load.run, 40)
    await system.kept(load, by_each_puller=True)  # one that joined knows not what others saw
    before, starts = await system.rows(load.run), system.starts(load.run)
    again = await system.deliver_again(load.run, *topics)
    assert again.total() > 2 * len(load.acknowledged)
    await system.caught_up(again)
    assert await system.rows(load.run) == before  # to the very version and instant
    assert system.starts(load.run) == starts


async def test_an_agenda_of_five_megabytes_is_refused_over_http_and_from_kafka(system):
    noise = Random(5).randbytes(2_500_000).hex()  # no compression makes it fit
    operation = {"name": "only", "type": WORK, "payload": noise}
    huge = json.dumps(agenda("huge-one", operations=[operation])).encode()
    limit = system.settings.max_agenda_bytes
    async with (
        aiohttp.ClientSession(system.settings.api_url) as session,
        session.post(
            "/v1/agendas", data=BytesIO(huge), headers={"Content-Type": "application/json"}
        ) as response,
    ):
        problem = await response.json(content_type=None)
    assert (response.status, problem["limit"]) == (413, limit)
    async with connections.admin_client(system.settings) as admin:
        # What is not named goes back to the broker's own.
        configs = {"max.message.bytes": "8000000", "message.timestamp.type": "LogAppendTime"}
        topic = ConfigResource(ConfigResourceType.TOPIC, system.names.submissions, configs)
        await admin.alter_configs([topic])
    async with (
        AIOKafkaProducer(
            bootstrap_servers=system.settings.kafka_bootstrap, max_request_size=8_000_000
        ) as producer,
        within(WITHIN_S),
    ):
        small = json.dumps(agenda("huge-then")).encode()
        for value in (huge, small):
            while True:
                try:
                    await producer.send_and_wait(system.names.submissions, value, partition=0)
                except MessageSizeTooLargeError:  # the broker does not know its limit yet
                    await asyncio.sleep(LOOK_S)
                else:
                    break
    rows = await system.ended("huge-", ["huge-one", "huge-then"])
    assert (rows["huge-one"]["state"], rows["huge-then"]["state"]) == ("refused", "succeeded")
    letters = [
        json.loads(one.value)
        async for one in read_topic(system.settings, system.names.dead_letters)
    ]
    [letter] = [one for one in letters if one["topic"] == system.names.submissions]
    assert (letter["part"], letter["code"]) == ("ingest", "submission_refused")
    assert f"{len(huge)} bytes" in letter["reason"]
    assert str(limit) in letter["reason"]


async def test_a_thousand_operations_run_once_each_and_their_progress_is_exact(system):
    first = [{"name": f"first-{one}", "type": WORK, "payload": 0} for one in range(500)]
    gate = {"name": "gate", "type": WORK, "payload": 3}
    then = [
        {"name": f"then-{one}", "type": WORK, "payload": 0, "depends_on": ["gate"]}
        for one in range(499)
    ]
    await system.submit(agenda("thousand", operations=[*first, gate, *then]))
    async with within(WITHIN_S):
        while True:
            _, _, progress = await system.get("/v1/agendas/thousand/progress")
            states = Counter(one["state"] for one in progress.get("operations", ()))
            if states["succeeded"] == 500:
                break
            await asyncio.sleep(LOOK_S)
    assert (progress["percent"], sum(states.values())) == (50.0, 1000)
    rows = await system.ended("thousand", ["thousand"])
    assert (rows["thousand"]["state"], rows["thousand"]["percent"]) == ("succeeded", 100.0)
    counted = await system.fetch(
        "select state, count(*) as times from operations where agenda_id = 'thousand' "
        "group by state"
    )
    assert [(one["state"], one["times"]) for one in counted] == [("succeeded", 1000)]
    starts = [one.operation for one in system.starts("thousand")]
    assert len(starts) == len(set(starts)) == 1000
    sizes = [
        len(one.value)
        for topic in (system.names.agenda_events, system.names.ready)
        async for one in read_topic(system.settings, topic)
        if b'"thousand"' in one.value
    ]
    assert max(sizes) < 512 * 1024


async def test_clocks_hours_apart_neither_stop_nor_repeat_nor_delay_anything(system, tmp_path):
    hours = {"api": 2, "ingest": -2, "scheduler": 2, "rollup": 2, "puller-1": 2, "puller-2": -2}
    await system.supervisor.stop("scheduler-2")
    await asyncio.gather(*(skewed(system, part, tmp_path, hours[part]) for part in hours))
    async with system.load("skewed") as load:
        await system.more_started(load.run, 80)
    await system.kept(load)
    operation = {"name": "only", "type": "test.fail-once"}
    backoff = {"first_s": 3, "jitter": 0}
    await system.submit(agenda("waits", operations=[operation], backoff=backoff))
    async with within(WITHIN_S):
        rows = {}
        while [row["state"] for row in rows.values()] != ["waiting"]:
            await asyncio.sleep(LOOK_S)
            rows = await system.rows("waits")
    # Set back by four hours: it ends, and the one that follows knows of the pause by its end.
    (tmp_path / "scheduler").write_text("-7200")
    await system.until(lambda: system.supervisor.status()["scheduler"].restarts)
    rows = await system.ended("waits", ["waits"])
    assert (rows["waits"]["state"], rows["waits"]["attempt"]) == ("succeeded", 2)


async def skewed(system, part, folder, hours):
    """Start a part anew, with a clock that is so far ahead."""
    (folder / part).write_text(str(3600 * hours))
    python, _, _, *command = system.supervisor._supervised[part].part.command
    await system.restart(part, python, str(SKEWED), str(folder / part), *command)
