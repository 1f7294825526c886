"""What is wrong with an installation, in words."""

from datetime import timedelta

from pop_stream.kafka import topics
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import MigrationError, UnavailableError
from pop_stream.operations import provisioning
from pop_stream.operations.liveness import LATE_AFTER, find_stalled_parts, in_words
from pop_stream.operations.provisioning import definitions_in_file
from pop_stream.postgres.definitions import PostgresDefinitionOutbox
from pop_stream.postgres.migrate import pending_migrations
from pop_stream.postgres.pool import open_pool
from pop_stream.rollup.retention import retention_from
from pop_stream.settings import Settings, is_loopback


async def doctor(settings: Settings) -> list[str]:
    """Everything that is wrong with brokers, topics, schema, definitions or parts, in words.

    One fault does not hide the next, but that what can only be asked of Kafka is not asked
    while it is away, nor for definitions while their topic is missing, which whoever reads
    them would wait for; each line says what to do about it.
    """
    definitions_topic = Topics(settings.topic_prefix).definitions
    checks = [_schema_findings, _file_findings, _security_findings]
    try:
        has_definitions = await provisioning.has_topic(settings, definitions_topic)
        faults = await provisioning.topic_errors(settings)
        kept = await provisioning.event_retention(settings)
    except (KafkaError, OSError) as error:
        kept = None
        found = [
            f"Kafka at {settings.kafka_bootstrap} does not answer ({error}): start it, or "
            "set POP_KAFKA_BOOTSTRAP"
        ]
    else:
        found = [f"topic {fault}" for fault in faults]
        if has_definitions:
            checks.append(_kafka_findings)
    found += [finding for check in checks for finding in await check(settings)]
    return [*found, *_retention_findings(settings, kept)]


async def _security_findings(settings: Settings) -> list[str]:
    found: list[str] = []
    if settings.auth == "off" and not settings.listens_on_loopback:
        found.append(
            f"the API listens on {settings.http_host} and asks nobody who calls: set "
            "POP_AUTH=required, or POP_HTTP_HOST=127.0.0.1"
        )
    brokers = [one.strip().rpartition(":")[0] for one in settings.kafka_bootstrap.split(",")]
    if not settings.signing_secrets and not all(map(is_loopback, brokers)):
        found.append(
            "nothing on Kafka is signed, so whoever writes to it can speak for every customer: "
            "set POP_SIGNING_SECRETS for API, ingest, rollup and here"
        )
    return found


async def _schema_findings(settings: Settings) -> list[str]:
    try:
        pending = await pending_migrations(settings.postgres_dsn.get_secret_value())
    except UnavailableError as error:
        return [f"Postgres does not answer ({error}): start it, or set POP_POSTGRES_DSN"]
    except MigrationError as error:
        return [str(error)]
    if pending:
        return [f"migration {name} is missing: run `pop-stream migrate`" for name in pending]
    return await _outbox_findings(settings)


async def _outbox_findings(settings: Settings) -> list[str]:
    async with open_pool(settings) as pool:
        oldest = await PostgresDefinitionOutbox(pool).oldest_unpublished()
    if oldest is None or oldest[1] < LATE_AFTER:
        return []
    key, age = oldest
    return [
        f"{key} was changed {in_words(age)} ago and is not published, so other parts do not "
        "know it: start `pop-stream serve`, whose log says what is wrong, or run `pop-stream "
        "migrate`"
    ]


async def _file_findings(settings: Settings) -> list[str]:
    try:
        definitions_in_file(settings)
    except (ValueError, TypeError, OSError) as error:
        return [f"POP_DEFINITIONS_FILE is of no use: {error}"]
    return []


async def _kafka_findings(settings: Settings) -> list[str]:
    """Findings about definitions, and about the parts that these definitions need."""
    try:
        async with DefinitionFollower(settings, client_id="doctor") as follower:
            known = follower.current
    except (KafkaError, UnavailableError) as error:
        return [f"definitions cannot be read: {error}"]
    undefined = "no insight is defined, so every agenda is refused: set POP_DEFINITIONS_FILE"
    absent = await _part_findings(settings, known)
    return absent if known.insights else [undefined, *absent]


async def _part_findings(settings: Settings, definitions: Definitions) -> list[str]:
    """None if Kafka is away, which other checks report."""
    try:
        return await find_stalled_parts(settings, definitions)
    except (KafkaError, UnavailableError, OSError):
        return []


def _retention_findings(settings: Settings, live: timedelta | None = None) -> list[str]:
    """Summaries must outlive the events they came from, or a removed one looks like a loss.

    Args:
        settings: How long summaries are kept.
        live: How long the topic keeps events; None if nobody knows, then as in the catalog.
    """
    names = Topics(settings.topic_prefix)
    specs = {spec.name: spec for spec in topics.catalog(names)}
    event_retention = live or specs[names.agenda_events].retention
    kept = retention_from(settings).shortest
    if event_retention is None or kept >= event_retention:
        return []
    span = "ever" if event_retention == timedelta.max else event_retention
    return [
        f"ended agendas are kept for {kept}, events in {names.agenda_events} for {span}: raise "
        "POP_RETAIN_SUCCEEDED, POP_RETAIN_FAILED and POP_RETAIN_STOPPED to at least that, or "
        "`pop-stream doctor --ledger` takes removed agendas for lost ones"
    ]
