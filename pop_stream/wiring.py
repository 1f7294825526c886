"""The composition root: which adapter stands behind which port, for each part.

A part imports what it alone runs when it is run: one that was killed is back sooner.
"""

import asyncio
import secrets
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from pop_stream.bus import clients, topics
from pop_stream.bus.definitions import DefinitionFollower
from pop_stream.bus.doors import DoorKeeper
from pop_stream.bus.lag import KafkaLagProbe
from pop_stream.bus.publisher import KafkaPublisher
from pop_stream.bus.questions import KafkaQuestions
from pop_stream.bus.steady_publisher import SteadyPublisher
from pop_stream.bus.topics import Topics
from pop_stream.bus.whole import read_span
from pop_stream.clock import WallClock
from pop_stream.core.deeds import Author
from pop_stream.core.definition_records import definition_key, definitions_from
from pop_stream.core.definitions import Definition, Insight
from pop_stream.core.door import Door
from pop_stream.core.errors import DefinitionError, MigrationError, UnavailableError
from pop_stream.core.identity import ALL_ROLES, Principal
from pop_stream.core.ids import CustomerId
from pop_stream.core.revisions import put
from pop_stream.outbox.publication import Publication
from pop_stream.rollup.reconciliation import Reconciler, Reconciliations, reconcile_regularly
from pop_stream.rollup.retention import retain, retain_regularly, retention_of
from pop_stream.settings import Settings
from pop_stream.store.agendas import PostgresAgendas
from pop_stream.store.audit import PostgresAuditLog
from pop_stream.store.callbacks import PostgresCallbacks
from pop_stream.store.definitions import PostgresDefinitions, PostgresOutbox
from pop_stream.store.keys import PostgresKeys
from pop_stream.store.ledger import PostgresLedger
from pop_stream.store.migrate import ensure_database, pending_migrations
from pop_stream.store.migrate import migrate as apply_migrations
from pop_stream.store.pool import open_pool
from pop_stream.store.reader import PostgresSummaryReader
from pop_stream.store.reconciliation import PostgresOpenAgendas
from pop_stream.store.retention import PostgresRetention
from pop_stream.store.summaries import PostgresSummaries
from pop_stream.telemetry import exposed

if TYPE_CHECKING:
    from pop_stream.api.access import Authenticator
    from pop_stream.identity.tokens import TokenVerifier
    from pop_stream.intake.gate import Gate
    from pop_stream.ports import DefinitionSource, Publisher
    from pop_stream.store.pool import Pool
MIGRATION: Final = Author(
    principal=Principal("migrate", None, ALL_ROLES), request_id="pop-stream migrate"
)
"""Who the audit log says has changed what a file changed."""


_HEARD_FROM: Final = timedelta(minutes=2)
"""So far back a new door listens; whoever has something to say says it every ten seconds."""


_AGAIN_AFTER_S: Final = 5.0
"""When what could not be opened is tried once more."""


@asynccontextmanager
async def admin_client(
    settings: Settings, *, client_id: str = "admin"
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client, closed at the end."""
    admin = clients.admin(settings, client_id=client_id)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def publisher(settings: Settings, *, client_id: str) -> SteadyPublisher:
    """A publisher of its own for a part; leave it to stop it."""

    def make() -> KafkaPublisher:
        producer = clients.producer(settings, client_id=client_id)
        return KafkaPublisher(producer, give_up_after=settings.publish_timeout)

    return SteadyPublisher(make)


async def run_api(
    settings: Settings,
    stop: asyncio.Event,
    on_url: Callable[[str], None] = lambda _: None,
) -> None:
    """The HTTP API until `stop`.

    Args:
        settings: Where to listen, and where all else is.
        stop: Set by whoever ends the process.
        on_url: Told the address once it accepts connections.
    """
    from pop_stream.api.app import ApiPorts, create_app
    from pop_stream.api.server import serve
    from pop_stream.bus.handouts import KafkaHandouts
    from pop_stream.pullers.dispatch import Dispatcher

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        publish = await enter(publisher(settings, client_id="api"))
        definitions = await enter(DefinitionFollower(settings, client_id="api"))
        pool = await enter(open_pool(settings))
        publication = Publication(PostgresOutbox(pool), publish, Topics(settings.topic_prefix))
        ports = ApiPorts(
            publisher=publish,
            summaries=PostgresSummaryReader(pool),
            agendas=PostgresAgendas(pool),
            definitions=definitions,
            definition_store=PostgresDefinitions(pool),
            on_defined=publication.wake,
            questions=await enter(KafkaQuestions(settings, publish, definitions)),
            keys=PostgresKeys(pool),
            audit=PostgresAuditLog(pool),
            desk=await enter(KafkaHandouts(settings, publish)),
            clock=WallClock(),
            door=(await enter(_doors(settings, publish, definitions, "api"))).door,
            authenticator=authenticator(settings, pool, definitions),
        )
        publishing = asyncio.create_task(publication.run(lambda: definitions.heard))
        stack.push_async_callback(_ended, publishing)
        dispatching = asyncio.create_task(Dispatcher(settings, publish, WallClock()).run())
        stack.push_async_callback(_ended, dispatching)
        await serve(create_app(ports, settings), settings, stop, on_url=on_url)


def _doors(
    settings: Settings, publish: "Publisher", definitions: "DefinitionSource", part: str
) -> DoorKeeper:
    """The door of this process, not yet kept."""
    clock = WallClock()
    door = Door(
        f"{part}-{secrets.token_hex(6)}",
        lambda one: definitions.current.customers.get(CustomerId(one)),
    )
    return DoorKeeper(
        settings,
        publish,
        door,
        # Intake goes by the instants of records, which are of the wall clock.
        now_s=time.monotonic if part == "api" else lambda: clock.now().timestamp(),
        since=clock.now() - _HEARD_FROM,
    )


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[PostgresKeys]:
    """The API keys in Postgres, for a command that works without the API."""
    async with open_pool(settings) as pool:
        yield PostgresKeys(pool)


def authenticator(
    settings: Settings, pool: "Pool", definitions: DefinitionFollower
) -> "Authenticator":
    """Who tells callers apart, as the settings ask."""
    from pop_stream.api.access import Everyone
    from pop_stream.identity.credentials import Credentials
    from pop_stream.identity.key_book import KeyBook

    if not settings.asks_who_calls:
        return Everyone()
    keys = KeyBook(PostgresKeys(pool), WallClock(), definitions.api_key)
    return Credentials(keys, token_verifier(settings))


def token_verifier(settings: Settings) -> "TokenVerifier | None":
    """Who judges tokens of the issuer that the settings name; None if they name none."""
    if settings.jwt_issuer is None or settings.jwt_jwks is None:
        return None
    from pop_stream.identity.key_sets import KeySet, source
    from pop_stream.identity.tokens import TokenRules, TokenVerifier

    rules = TokenRules(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        leeway=settings.jwt_leeway,
        customer_claim=settings.jwt_customer_claim,
        roles_claim=settings.jwt_roles_claim,
    )
    return TokenVerifier(rules, KeySet(source(settings.jwt_jwks), WallClock()))


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and let it go."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def intake_gate(
    settings: Settings, definitions: DefinitionFollower
) -> AsyncIterator["Gate | None"]:
    """Who tells senders of records apart, as the settings ask."""
    if settings.intake_auth == "off":
        yield None
        return
    from pop_stream.identity.credentials import Credentials
    from pop_stream.identity.key_book import KeyBook
    from pop_stream.intake.gate import Gate

    async with open_pool(settings) as pool:
        keys = KeyBook(PostgresKeys(pool), WallClock(), definitions.api_key)
        secret = settings.intake_secret
        yield Gate(
            Credentials(keys, token_verifier(settings)),
            secret=secret.get_secret_value().encode() if secret else None,
            is_strict=settings.intake_auth == "required",
        )


async def run_intake(settings: Settings, stop: asyncio.Event) -> None:
    """Intake and relay until `stop`; ends at once when either fails."""
    from pop_stream.intake.intake import Intake
    from pop_stream.intake.relay import Relay

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="intake"))
        publish = await enter(publisher(settings, client_id="intake"))
        relay_publish = await enter(publisher(settings, client_id="relay"))
        gate = await enter(intake_gate(settings, definitions))
        doors = await enter(_doors(settings, publish, definitions, "intake"))
        intake = Intake(settings, publish, definitions, WallClock(), gate, doors)
        relay = Relay(settings, relay_publish, definitions)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(intake.run(stop))
            tasks.create_task(relay.run(stop))


async def run_scheduler(settings: Settings, stop: asyncio.Event) -> None:
    """The scheduler until `stop`."""
    from pop_stream.scheduler.app import Scheduler

    names = Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="scheduler"))
        publish = await enter(publisher(settings, client_id="scheduler-emit"))
        admin = await enter(admin_client(settings, client_id="scheduler-admin"))
        offsets = clients.consumer(settings, client_id="scheduler-lag", group_id=None)
        await enter(offsets)
        scheduler = Scheduler(
            settings=settings,
            publisher=publish,
            definitions=definitions,
            probe=KafkaLagProbe(names, admin, offsets),
            clock=WallClock(),
            create_topic=_topic_creator(settings, admin),
            reread=lambda partition, start, end: read_span(
                settings, TopicPartition(names.ready, partition), start, end
            ),
            partitions=await publish.partitions(names.ready),
        )
        await enter(exposed(scheduler.registry, settings.metrics_host, settings.metrics_port))
        await scheduler.run(stop)


async def run_rollup(settings: Settings, stop: asyncio.Event) -> None:
    """Rollup, callbacks, retention and reconciliation, until `stop`; ends if one fails."""
    from pop_stream.callbacks.sender import Sender
    from pop_stream.rollup.rollup import roll_up

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        pool = await enter(open_pool(settings, for_rollup=True))
        publish = await enter(publisher(settings, client_id="rollup"))
        sender = Sender(settings, PostgresCallbacks(pool), publish, WallClock())
        await enter(sender)
        async with asyncio.TaskGroup() as tasks:
            store = PostgresSummaries(pool)
            tasks.create_task(
                roll_up(settings, store=store, publisher=publish, stop=stop), name="rollup"
            )
            tasks.create_task(sender.run(stop), name="callbacks")
            archive = PostgresRetention(pool)
            retaining = retain_regularly(settings, archive, WallClock(), stop)
            tasks.create_task(retaining, name="retention")
            if settings.reconcile_every:
                reconciling = _reconcile(settings, pool, publish, stop)
                tasks.create_task(reconciling, name="reconciliation")


async def _reconcile(
    settings: Settings, pool: "Pool", publish: "Publisher", stop: asyncio.Event
) -> None:
    """Place again what nobody has, until `stop`; what it needs is waited for."""
    registry = CollectorRegistry()
    told = Reconciliations(registry)
    host, port = settings.metrics_host, settings.rollup_metrics_port
    async with exposed(registry, host, port):
        while not stop.is_set():
            try:
                async with _reconciler(settings, pool, publish) as reconciler:
                    await reconcile_regularly(reconciler, told, settings.reconcile_every, stop)
            except (UnavailableError, KafkaError, OSError) as error:
                told.note_postponed(error)
                await asyncio.wait([asyncio.create_task(stop.wait())], timeout=_AGAIN_AFTER_S)


@asynccontextmanager
async def _reconciler(
    settings: Settings, pool: "Pool", publish: "Publisher"
) -> AsyncIterator[Reconciler]:
    names = Topics(settings.topic_prefix)
    async with (
        DefinitionFollower(settings, client_id="reconcile") as definitions,
        KafkaQuestions(settings, publish, definitions) as questions,
        admin_client(settings, client_id="reconcile-admin") as admin,
        clients.consumer(settings, client_id="reconcile-lag", group_id=None) as offsets,
    ):
        yield Reconciler(
            names,
            agendas=PostgresOpenAgendas(pool),
            ledger=PostgresLedger(pool),
            questions=questions,
            publisher=publish,
            definitions=definitions,
            probe=KafkaLagProbe(names, admin, offsets),
        )


async def retain_once(settings: Settings, *, dry_run: bool) -> dict[str, int]:
    """Remove what has ended long enough ago; how many by state, and `callbacks`."""
    async with open_pool(settings) as pool:
        now = WallClock().now()
        return await retain(
            PostgresRetention(pool), retention_of(settings), now, dry_run=dry_run
        )


async def migrate(settings: Settings) -> list[str]:
    """Bring schema, topics and definitions up to date; says what was done, one line each."""
    dsn = settings.postgres_dsn.get_secret_value()
    created = await ensure_database(dsn)
    applied = await apply_migrations(dsn)
    topics_created = await ensure_topics(settings)
    published = await import_definitions(settings)
    return [
        *(["created the database"] if created else []),
        *(f"applied migration {name}" for name in applied),
        *(f"created topic {name}" for name in topics_created),
        *(f"published definition {key}" for key in published),
    ]


async def doctor(settings: Settings) -> list[str]:
    """Everything that is wrong with brokers, topics, schema or definitions, in words.

    One fault does not hide the next; each line says what to do about it.
    """
    checks = (
        _broker_findings,
        _schema_findings,
        _definition_findings,
        _security_findings,
        _retention_findings,
    )
    return [finding for check in checks for finding in await check(settings)]


async def ensure_topics(settings: Settings) -> list[str]:
    """Create the fixed topics that are missing; returns their names."""
    specs = topics.catalog(Topics(settings.topic_prefix))
    async with admin_client(settings) as admin:
        return await topics.ensure(admin, specs, replication_factor=settings.replication_factor)


async def topic_faults(settings: Settings) -> list[str]:
    """What is wrong with topics, in words; empty when all is well."""
    names = Topics(settings.topic_prefix)
    async with admin_client(settings) as admin:
        found = await topics.faults(admin, topics.catalog(names))
        return [*found, *await topics.insight_faults(admin, names)]


async def import_definitions(settings: Settings) -> list[str]:
    """Take up what the topic alone knows, then the file, and publish; the keys published.

    What the topic alone knows was written there by hand, or before Postgres had definitions.

    Raises:
        ValueError: If the file is wrong, or asks for what cannot be.
    """
    wanted = definitions_in_file(settings)
    async with (
        DefinitionFollower(settings, client_id="migrate") as follower,
        publisher(settings, client_id="migrate") as publish,
        open_pool(settings) as pool,
    ):
        outbox = PostgresOutbox(pool)
        known = {row.key for row in await outbox.newest()}
        found = [one for one in follower.current.all() if definition_key(one) not in known]
        store = PostgresDefinitions(pool)
        try:
            await store.change([put(one) for one in found], MIGRATION)
            await store.change([put(one) for one in wanted], MIGRATION)
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        publication = Publication(outbox, publish, Topics(settings.topic_prefix))
        published = await publication.drain()
        return [*published, *await publication.repair(follower.heard)]


def definitions_in_file(settings: Settings) -> tuple[Definition, ...]:
    """The definitions of `POP_DEFINITIONS_FILE`; none if it is not set.

    Raises:
        ValueError: If the file is no TOML or a definition in it is wrong.
        OSError: If it cannot be read.
    """
    if settings.definitions_file is None:
        return ()
    return definitions_from(tomllib.loads(settings.definitions_file.read_text()))


async def _security_findings(settings: Settings) -> list[str]:
    if settings.auth == "off" and not settings.listens_on_loopback:
        return [
            f"the API listens on {settings.http_host} and asks nobody who calls: set "
            "POP_AUTH=required, or POP_HTTP_HOST=127.0.0.1"
        ]
    return []


async def _broker_findings(settings: Settings) -> list[str]:
    try:
        faults = await topic_faults(settings)
    except (KafkaError, OSError) as error:
        return [
            f"Kafka at {settings.kafka_bootstrap} does not answer ({error}): start it, or "
            "set POP_KAFKA_BOOTSTRAP"
        ]
    return [f"topic {fault}: run `pop-stream migrate`" for fault in faults]


async def _schema_findings(settings: Settings) -> list[str]:
    try:
        pending = await pending_migrations(settings.postgres_dsn.get_secret_value())
    except UnavailableError as error:
        return [f"Postgres does not answer ({error}): start it, or set POP_POSTGRES_DSN"]
    except MigrationError as error:
        return [str(error)]
    return [f"migration {name} is missing: run `pop-stream migrate`" for name in pending]


async def _definition_findings(settings: Settings) -> list[str]:
    try:
        definitions_in_file(settings)
        async with DefinitionFollower(settings, client_id="doctor") as follower:
            known = follower.current.insights
    except (ValueError, TypeError, OSError) as error:
        return [f"POP_DEFINITIONS_FILE is of no use: {error}"]
    except (KafkaError, UnavailableError) as error:
        return [f"definitions cannot be read: {error}"]
    if not known:
        return ["no insight is defined, so every agenda is refused: set POP_DEFINITIONS_FILE"]
    return []


async def _retention_findings(settings: Settings) -> list[str]:
    """Summaries must outlive the events they came from: else removed looks like lost."""
    names = Topics(settings.topic_prefix)
    specs = {spec.name: spec for spec in topics.catalog(names)}
    events_kept = specs[names.agenda_events].retention
    kept = retention_of(settings).shortest
    if events_kept is None or kept >= events_kept:
        return []
    return [
        f"ended agendas are kept for {kept}, their events for {events_kept}: raise "
        "POP_RETAIN_SUCCEEDED, POP_RETAIN_FAILED and POP_RETAIN_STOPPED to at least that, or "
        "`pop-stream doctor --ledger` takes removed agendas for lost ones"
    ]


def _topic_creator(
    settings: Settings, admin: AIOKafkaAdminClient
) -> Callable[[Insight], Awaitable[None]]:
    names = Topics(settings.topic_prefix)

    async def create(insight: Insight) -> None:
        spec = topics.insight_spec(names, insight.id, insight.partitions)
        try:
            await topics.ensure(admin, [spec], replication_factor=settings.replication_factor)
            await topics.grow(admin, spec)
        except KafkaError as error:
            raise UnavailableError(repr(error)) from error

    return create
