"""Composes the HTTP API, with the dispatcher of pulls and the relay of the outbox beside it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from pop_stream.api.app import ApiPorts, create_app
from pop_stream.api.http.access import AllowAll, RequestAuthenticator
from pop_stream.api.http.server import bare_application, serve
from pop_stream.background import background
from pop_stream.clock import WallClock
from pop_stream.composition.auth import credentials
from pop_stream.composition.policies import admission_policies, operator_rankers
from pop_stream.composition.quotas import quota_gossip_of
from pop_stream.http_pull.dispatcher import Dispatcher
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.deliveries import KafkaHttpDeliveries
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.kafka.schedule_states import ScheduleStates
from pop_stream.kafka.topics import Topics
from pop_stream.model.revisions import CustomerLimits
from pop_stream.operations.definition_outbox import DefinitionsOutboxRelay
from pop_stream.operations.doctor import doctor
from pop_stream.postgres.agendas import PostgresAgendas
from pop_stream.postgres.completions import PostgresCompletions
from pop_stream.postgres.dead_letters import PostgresDeadLetters
from pop_stream.postgres.definitions import PostgresDefinitionOutbox, PostgresDefinitions
from pop_stream.postgres.keys import PostgresAuditLog, PostgresKeys
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.pullers import PostgresPullers
from pop_stream.postgres.signals import PostgresSignals
from pop_stream.postgres.stats import PostgresStats
from pop_stream.postgres.summary_reader import PostgresSummaryReader
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.console.oidc import OidcConfig
    from pop_stream.postgres.pool import Pool


async def run_api(
    settings: Settings,
    stop: asyncio.Event,
    on_url: Callable[[str], None] = lambda _: None,
) -> None:
    """The HTTP API until `stop`.

    Args:
        settings: Where to listen, and where all else is.
        stop: Set by whoever ends the process.
        on_url: Called with the address once it accepts connections.
    """
    async with open_ports(settings) as ports:
        dispatcher = Dispatcher(settings, ports.publisher, WallClock())
        app, urls = create_app(ports, settings), list[str]()
        works: dict[str, Coroutine[Any, Any, None]] = {"dispatcher": dispatcher.run()}
        if settings.console and settings.console_port is None:
            _add_console(app, settings, urls)
        elif settings.console:
            works["console"] = _serve_console(settings, urls)

        def listens(url: str) -> None:
            urls.append(url)
            on_url(url)

        async with background(**works):
            await serve(app, settings, stop, on_url=listens)


def _add_console(app: web.Application, settings: Settings, urls: list[str]) -> None:
    """Mount the web console, which calls the API by the address that it listens at."""
    from pop_stream.console.app import ConsoleConfig, mount

    config = ConsoleConfig(
        base=settings.console_path,
        api_url=lambda: reachable(urls[0]),
        signs_in=settings.requires_authentication,
        session=settings.console_session,
        hosts=settings.api_names,
        oidc=_oidc(settings),
    )
    mount(app, config)


def _oidc(settings: Settings) -> "OidcConfig | None":
    """The issuer where viewers may sign in, if there is one."""
    from pop_stream.console.oidc import OidcConfig

    if settings.oidc_issuer is None:
        return None
    secret = settings.oidc_client_secret
    return OidcConfig(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=secret.get_secret_value() if secret else None,
        redirect_url=settings.oidc_redirect_url,
        scopes=settings.oidc_scopes,
    )


async def _serve_console(settings: Settings, urls: list[str]) -> None:
    """Serve the web console at a port of its own, until cancelled."""
    app = bare_application()
    _add_console(app, settings, urls)
    at_port = settings.model_copy(update={"http_port": settings.console_port})
    await serve(app, at_port, asyncio.Event())


def reachable(url: str) -> str:
    """The address of a listener as this machine calls it: all addresses mean loopback."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


@asynccontextmanager
async def open_ports(settings: Settings) -> AsyncIterator[ApiPorts]:
    """Open the ports of the API, and publish changes of definitions while they are open."""
    policies = admission_policies(settings)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        publish = await enter(connections.publisher(settings, client_id="api"))
        definitions = await enter(DefinitionFollower(settings, client_id="api"))
        pool = await enter(open_pool(settings))
        limits = _limits(settings)
        topics = Topics(settings.topic_prefix)
        publication = DefinitionsOutboxRelay(PostgresDefinitionOutbox(pool), publish, topics)
        publishing = publication.run(lambda: definitions.versions_by_key)
        await enter(background(definition_publication=publishing))
        yield ApiPorts(
            publisher=publish,
            summaries=PostgresSummaryReader(pool),
            agendas=PostgresAgendas(pool),
            definitions=definitions,
            definition_store=PostgresDefinitions(pool, limits),
            on_defined=publication.wake,
            questions=await enter(KafkaQueueQueries(settings, publish, definitions)),
            keys=PostgresKeys(pool, limits),
            audit=PostgresAuditLog(pool, limits),
            dead_letters=PostgresDeadLetters(pool),
            pullers=PostgresPullers(pool),
            signals=PostgresSignals(pool),
            completions=PostgresCompletions(pool),
            occurrences=PostgresOccurrences(pool),
            stats=PostgresStats(pool),
            deliveries=await enter(KafkaHttpDeliveries(settings, publish)),
            clock=WallClock(),
            examine=lambda: doctor(settings),
            policies=policies,
            rankers=operator_rankers(),
            quota_ledger=(
                await enter(quota_gossip_of(settings, publish, definitions, "api"))
            ).quota_ledger,
            authenticator=authenticator(settings, pool, definitions),
            schedule_state=(await enter(ScheduleStates(settings))).get,
        )


def _limits(settings: Settings) -> CustomerLimits:
    return CustomerLimits(
        templates=settings.max_templates,
        schedules=settings.max_schedules,
        keys=settings.max_keys,
        changes_per_hour=settings.max_changes_per_hour,
        versions=settings.kept_versions,
    )


def authenticator(
    settings: Settings, pool: "Pool", definitions: DefinitionFollower
) -> RequestAuthenticator:
    """What authenticates callers, as the settings ask."""
    if not settings.requires_authentication:
        return AllowAll()
    return credentials(settings, pool, definitions)
