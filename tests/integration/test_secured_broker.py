"""Agendas of both kinds of group on a broker that asks for TLS and a password."""

import json
import tempfile
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from deadlines import scaled, within
from part_processes import process
from puller_world import serving
from pydantic import SecretStr
from secured_kafka import MECHANISM, secured_kafka

from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import DefinitionFollower, publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaSucceeded
from pop_stream.operations import liveness, provisioning
from pop_stream.ports.publisher import Record
from pop_stream.puller import Puller
from pop_stream.puller.handlers.builtin import builtin
from pop_stream.settings import Settings

WITHIN_S = 60
INSIGHTS = [
    Insight(id="media", mappers=Mappers(operation_types=("noop",))),
    Insight(
        id="shared",
        mappers=Mappers(operation_types=("sleep",)),
        group_type="share",
        partitions=1,
    ),
]


@pytest.fixture
async def settings(monkeypatch, tmp_path):
    with tempfile.TemporaryDirectory(prefix="pop-stream-tests-") as folder:
        async with secured_kafka(Path(folder), monkeypatch) as broker:
            security = {
                "kafka_bootstrap": broker.bootstrap,
                "kafka_security_protocol": "SASL_SSL",
                "kafka_sasl_mechanism": MECHANISM,
                "kafka_username": broker.user,
                "kafka_ca_file": str(broker.ca_file),
            }
            for name, value in (*security.items(), ("kafka_password", broker.password)):
                monkeypatch.setenv(f"POP_{name.upper()}", value)
            yield Settings(
                **security,
                kafka_password=SecretStr(broker.password),
                topic_prefix="t.",
                scheduler_data=tmp_path / "table",
                session_timeout=scaled(timedelta(seconds=6)),
            )


def submission(agenda_id, kind, payload):
    operation = {"name": "only", "type": kind, "payload": payload}
    value = {"id": agenda_id, "customer_id": "anna", "operations": [operation]}
    return Record("t.submissions", None, json.dumps(value).encode(), 0)


async def test_every_part_reaches_a_broker_by_tls_and_password(settings):
    names = Topics(settings.topic_prefix)
    await provisioning.ensure_topics(settings)
    events = clients.consumer(settings, names.agenda_events, client_id="look", group_id=None)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        publisher = await enter(connections.publisher(settings, client_id="test"))
        await publish_definitions(publisher, names, INSIGHTS, Definitions())
        await enter(events)
        await enter(process("run_ingest", settings))
        await enter(process("run_scheduler", settings))
        for one in INSIGHTS:
            await enter(serving(Puller(one.id, handlers=builtin(settings), settings=settings)))
        await publisher.publish(
            [submission("a1", "noop", None), submission("a2", "sleep", {"seconds": 0.1})]
        )
        done = set()
        async with within(WITHIN_S):
            while done != {"a1", "a2"}:
                for records in (await events.getmany(timeout_ms=200)).values():
                    seen = [one for record in records for one in decode_lifecycle(record.value)]
                    done |= {one.agenda_id for one in seen if isinstance(one, AgendaSucceeded)}
        # The rollup was not started; all others are there.
        async with DefinitionFollower(settings, client_id="test") as follower:
            absent = await liveness.find_stalled_parts(settings, follower.current)
        assert all("rollup" in one for one in absent)
    wrong = settings.model_copy(update={"kafka_password": SecretStr("wrong")})
    with pytest.raises(UnavailableError):
        async with connections.publisher(wrong, client_id="test") as publisher:
            await publisher.publish([submission("a3", "noop", None)])
