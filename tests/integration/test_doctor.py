"""What `pop-stream doctor` finds on a real cluster."""

import asyncio
from datetime import timedelta

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from deadlines import within

from pop_stream.kafka import clients, connections, topics
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.topics import Topics, TopicSpec
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.revisions import put
from pop_stream.operations import doctor, liveness, provisioning
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import TopicPartition
from pop_stream.postgres.definitions import PostgresDefinitions
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool

BROKERS_CLOCK = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def names(settings):
    return Topics(settings.topic_prefix)


async def test_topics_as_created_are_as_the_catalog_has_them(settings):
    await provisioning.ensure_topics(settings)
    assert await provisioning.topic_errors(settings) == []


async def test_topics_that_are_missing_have_one_remedy(settings, names):
    found = await provisioning.topic_errors(settings)
    assert len(found) == len(topics.catalog(names))
    assert all(one.endswith(" is missing: run `pop-stream migrate`") for one in found)
    assert await provisioning.event_retention(settings) is None


async def test_records_kept_too_short_are_found(settings, names):
    await provisioning.ensure_topics(settings)
    async with connections.admin_client(settings) as admin:
        answers = await admin.alter_configs(
            [
                ConfigResource(ConfigResourceType.TOPIC, name, {**BROKERS_CLOCK, **wrong})
                for name, wrong in (
                    (names.submissions, {"retention.ms": "60000"}),
                    (names.definitions, {"cleanup.policy": "delete"}),
                    (names.agenda_events, {"retention.ms": "-1", "retention.bytes": "1000"}),
                    (names.query_replies, {"message.timestamp.type": "CreateTime"}),
                    (names.ready, {"max.message.bytes": "1000000"}),
                )
            ]
        )
    assert not [one for answer in answers for one in answer.resources if one[0]]
    async with within(15):
        while len(found := await provisioning.topic_errors(settings)) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # brokers know of it a moment later
    keeps = await provisioning.event_retention(settings)
    assert keeps == timedelta.max
    for wrong in (
        f"{names.agenda_events} has retention.ms = -1, the catalog says 1209600000: run `",
        f"{names.agenda_events} has retention.bytes = 1000, the catalog says -1: run `",
        f"{names.submissions} has retention.ms = 60000, the catalog says 604800000",
        f"{names.definitions} has cleanup.policy = delete, the catalog says compact",
        f"{names.query_replies} has message.timestamp.type = CreateTime, the catalog says Log",
        f"{names.ready} takes batches of 1000000 bytes, and parts write up to 1016384: run `",
    ):
        assert any(wrong in one for one in found)


async def test_what_is_emitted_and_kept_too_short_is_found(settings, names):
    """What no puller has read would be gone."""
    await provisioning.ensure_topics(settings)
    async with connections.admin_client(settings) as admin:
        right = topics.insight_spec(names, "media", 2)
        wrong = TopicSpec(names.insight("video"), 2, {**right.configs, "retention.ms": "60000"})
        await topics.ensure(admin, [right, wrong], replication_factor=1)
    [found] = await provisioning.topic_errors(settings)
    assert f"{names.insight('video')} has retention.ms = 60000" in found


async def test_summaries_kept_shorter_than_their_events_are_found(settings, names):
    await provisioning.ensure_topics(settings)
    await migrate(settings.postgres_dsn.get_secret_value())
    short = settings.model_copy(update={"retain_stopped": timedelta(days=3)})
    found = [one for one in await doctor.doctor(short) if "POP_RETAIN" in one]
    assert len(found) == 1
    assert "3 days" in found[0]
    assert "14 days" in found[0]
    assert not [one for one in await doctor.doctor(settings) if "POP_RETAIN" in one]
    async with connections.admin_client(settings) as admin:
        [events] = [one for one in topics.catalog(names) if one.name == names.agenda_events]
        longer = {**events.configs, "retention.ms": "86400000000"}
        resource = ConfigResource(ConfigResourceType.TOPIC, names.agenda_events, longer)
        await admin.alter_configs([resource])
    async with within(15):
        while not (  # noqa: ASYNC110
            found := [one for one in await doctor.doctor(settings) if "POP_RETAIN" in one]
        ):
            await asyncio.sleep(0.1)
    assert "for 1000 days" in found[0]
    findings = [one for one in await doctor.doctor(settings) if "has retention.ms" in one]
    assert len(findings) == 1
    assert findings[0].endswith("--add-config retention.ms=1209600000`, or know why")


async def test_topics_that_are_missing_are_reported_at_once(settings, names):
    """Whoever reads definitions waits for their topic for half a minute."""
    await migrate(settings.postgres_dsn.get_secret_value())
    async with within(10):
        found = await doctor.doctor(settings)
    missing = [one for one in found if one.endswith(" is missing: run `pop-stream migrate`")]
    assert len(missing) == len(found) == len(topics.catalog(names))


@pytest.mark.parametrize("which", ["submissions", "ready", "agenda_events", "decisions"])
async def test_one_topic_that_is_missing_holds_up_no_other_check(settings, names, which):
    await migrate(settings.postgres_dsn.get_secret_value())
    lost = getattr(names, which)
    async with connections.admin_client(settings) as admin:
        there = [one for one in topics.catalog(names) if one.name != lost]
        await topics.ensure(admin, there, replication_factor=1)
    async with within(10):
        found = await doctor.doctor(settings)
    assert f"topic {lost} is missing: run `pop-stream migrate`" in found
    assert [one for one in found if one.startswith("no insight is defined")]


async def test_what_only_kafka_could_tell_is_not_asked_while_it_is_away(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    away = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:9"})
    async with within(10):
        [found] = await doctor.doctor(away)
    assert found.startswith("Kafka at 127.0.0.1:9 does not answer")


async def test_a_definition_that_is_not_published_is_found_once_it_is_late(
    settings, monkeypatch
):
    await provisioning.migrate(settings)
    assert await doctor._outbox_findings(settings) == []
    async with open_pool(settings) as pool:
        change = [put(Insight(id="media", mappers=Mappers(operation_types=("noop",))))]
        await PostgresDefinitions(pool).change(change, provisioning.MIGRATION_AUTHOR)
        assert await doctor._outbox_findings(settings) == []  # not late yet
        monkeypatch.setattr(doctor, "LATE_AFTER", timedelta(0))
        [found] = await doctor._outbox_findings(settings)
        assert found.startswith("insight/media was changed 0 s ago and is not published")
    await provisioning.import_definitions(settings)
    assert await doctor._outbox_findings(settings) == []


async def test_a_part_that_moves_but_is_late_is_found_by_its_oldest_record(
    settings, names, monkeypatch
):
    """As an agenda that waits to be routed, or an event that waits to be folded."""
    await provisioning.ensure_topics(settings)
    group = names.group("ingest")
    ingest, *_ = liveness.consumer_groups(names, Definitions())
    async with (
        connections.publisher(settings, client_id="t") as publish,
        connections.admin_client(settings) as admin,
        clients.consumer(settings, client_id="t", group_id=group) as reader,
    ):
        probe = KafkaLagProbe(names, admin, reader)
        place = TopicPartition(names.submissions, 0)
        await publish.publish([Record(place.topic, None, b"{}", 0) for _ in range(3)])
        reader.assign([place])
        monkeypatch.setattr(liveness, "LATE_AFTER", timedelta(microseconds=1))
        for committed, is_late in ((1, True), (3, False)):
            await reader.commit({place: committed})
            found = await liveness._late_findings(settings, ingest, probe)
            assert bool(found) is is_late
            assert all(
                f"ingest is behind: what waits for it in {place.topic}" in f for f in found
            )
        monkeypatch.undo()
        await reader.commit({place: 0})
        assert (
            await liveness._late_findings(settings, ingest, probe) == []
        )  # seconds are not late
