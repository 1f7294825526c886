"""What `pop-stream doctor` says of parts that are down, frozen or well."""

import json
import signal
from datetime import timedelta

import pytest
from deadlines import scaled, within
from ledger_world import agenda, parts
from part_processes import process
from puller_world import serving

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower, publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.operations import liveness, provisioning
from pop_stream.ports.publisher import Record
from pop_stream.postgres.migrate import migrate
from pop_stream.puller import Puller
from pop_stream.puller.handlers.builtin import builtin

MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)))
SHARED = Insight(
    id="shared",
    mappers=Mappers(params=("to=all",)),
    precedence=1,
    group_type="share",
    partitions=1,
)
WITHIN_S = 45


async def absent(settings):
    async with DefinitionFollower(settings, client_id="test") as follower:
        return await liveness.find_stalled_parts(settings, follower.current)


async def until_said(settings, *wanted):
    """Until the doctor finds exactly these parts absent, each reported in such words."""
    said = []
    try:
        async with within(WITHIN_S):
            while True:
                said = sorted(await absent(settings))
                if len(said) == len(wanted) and all(map(str.startswith, said, sorted(wanted))):
                    return said
    except TimeoutError:
        pytest.fail(f"wanted {sorted(wanted)}, and it last said {said}")


async def test_parts_that_are_down_or_frozen_are_distinguished_from_those_that_are_well(
    settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(liveness, "STALL_AFTER_S", scaled(3.0))
    session_timeout = scaled(timedelta(seconds=4))
    monkeypatch.setenv("POP_SESSION_TIMEOUT", f"PT{session_timeout.total_seconds():.1f}S")
    known = settings.model_copy(
        update={"scheduler_data": tmp_path / "table", "session_timeout": session_timeout}
    )
    names = Topics(known.topic_prefix)
    await migrate(known.postgres_dsn.get_secret_value())
    await provisioning.ensure_topics(known)
    async with connections.publisher(known, client_id="test") as publisher:
        await publish_definitions(publisher, names, [MEDIA, SHARED], Definitions())
        assert await absent(known) == []  # nothing was started, nothing waits
        values = [agenda("one"), agenda("all") | {"params": {"to": "all"}}]
        await publisher.publish(
            [Record(names.submissions, None, json.dumps(one).encode(), 0) for one in values]
        )
    [said] = await until_said(
        known, f"ingest is down; records waiting in {names.submissions}: 2;"
    )
    assert "start `pop-stream ingest`" in said
    nobody_pulls = [
        f"every puller of {one.id} is down; records waiting in {topic}: 1;"
        for one in (MEDIA, SHARED)
        for topic in [names.insight(one.id, one.group_type)]
    ]
    async with process("run_scheduler", known) as scheduler:
        async with parts(known, run_ingest, run_rollup):
            await until_said(known, *nobody_pulls)
            scheduler.send_signal(signal.SIGSTOP)
            frozen = await absent(known)
            assert any(one.startswith("the scheduler stands still; ") for one in frozen)
            await until_said(known, *nobody_pulls, "the scheduler is down")  # expelled
            scheduler.send_signal(signal.SIGCONT)
            await until_said(known, *nobody_pulls)
            async with serving(Puller("shared", handlers=builtin(known), settings=known)):
                await until_said(known, nobody_pulls[0])
        down = ("ingest is down", "the relay is down", "the rollup is down")
        await until_said(known, nobody_pulls[0], *down)
