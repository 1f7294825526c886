"""The application: everything the API is made of, put together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from aiohttp import web
from prometheus_client import CollectorRegistry

from pop_stream.api.agendas.commands import Commands
from pop_stream.api.agendas.lists import AgendaLists
from pop_stream.api.agendas.progress import Progress
from pop_stream.api.agendas.questions import Explanations
from pop_stream.api.agendas.streams import Pace, Streams
from pop_stream.api.definitions.definitions import Resource
from pop_stream.api.health import HealthChecks
from pop_stream.api.http.access import Authenticator, Everyone, Guard
from pop_stream.api.http.body import Bodies
from pop_stream.api.http.metrics import Metrics
from pop_stream.api.http.middleware import around_requests, sign
from pop_stream.api.http.openapi import Document
from pop_stream.api.keys.keys import AuditReader, Keys
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.leases import LeaseBook
from pop_stream.api.pulls.pulls import Pulls
from pop_stream.api.pulls.signs import SignsOfLife
from pop_stream.api.routes.table import Handlers, register, routes
from pop_stream.api.submissions.identity import time_ordered_id
from pop_stream.api.submissions.judge import Judge
from pop_stream.api.submissions.quota import Quota
from pop_stream.api.submissions.repeats import Repeats
from pop_stream.api.submissions.resubmissions import Resubmissions
from pop_stream.api.submissions.submissions import Submissions
from pop_stream.api.submissions.template_runs import TemplateRuns
from pop_stream.bus.topics import Topics
from pop_stream.core.definitions.definitions import KINDS, Kind
from pop_stream.core.doors.door import Door
from pop_stream.core.values.ids import CustomerId
from pop_stream.ports.agendas import AgendaStore
from pop_stream.ports.audit import AuditLog
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource, DefinitionStore
from pop_stream.ports.keys import KeyStore
from pop_stream.ports.questions import Questions
from pop_stream.ports.summaries import SummaryReader
from pop_stream.ports.wire import Publisher
from pop_stream.ports.work import Hearsay, WorkDesk
from pop_stream.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPorts:
    """What the API needs of the outside.

    Attributes:
        definition_store: The truth, of which `definitions` is a copy.
        on_defined: Called after every change of a definition.
        new_id: Makes an id, at an instant, for an agenda that has none.
        door: Holds customers to their quotas; None for one that hears of no others.
    """

    publisher: Publisher
    summaries: SummaryReader
    agendas: AgendaStore
    definitions: DefinitionSource
    definition_store: DefinitionStore
    keys: KeyStore
    audit: AuditLog
    questions: Questions
    desk: WorkDesk
    hearsay: Hearsay
    clock: Clock
    on_defined: Callable[[], None] = lambda: None
    new_id: Callable[[datetime], str] = time_ordered_id
    authenticator: Authenticator = field(default_factory=Everyone)
    door: Door | None = None


def create_app(
    ports: ApiPorts,
    settings: Settings,
    *,
    registry: CollectorRegistry | None = None,
    pace: Pace | None = None,
) -> web.Application:
    """The application, not yet listening; the ports must be open for as long as it runs.

    Args:
        ports: What it works with.
        settings: Names and limits.
        registry: Shown at `/metrics`; one of its own by default.
        pace: Times of event streams.
    """
    metrics = Metrics(registry or CollectorRegistry())
    document = Document(asks_who_calls=settings.asks_who_calls)
    pace = pace or Pace()
    pulls = _pulls(ports, settings, pace)
    streams = Streams(ports.summaries, metrics, pace)
    judge = _judge(ports, settings)
    submissions = Submissions(
        judge,
        ports.publisher,
        Repeats(ports.summaries, ports.clock),
        Quota(ports.door or _lone_door(ports.definitions)),
        settings=settings,
        metrics=metrics,
    )
    definitions = _resources(ports, settings)
    table = routes(
        Handlers(
            owners=_owners(ports),
            submissions=submissions,
            progress=Progress(ports.summaries),
            commands=_commands(ports, settings),
            lists=AgendaLists(ports.agendas),
            pulls=pulls,
            explanations=Explanations(ports.questions, ports.summaries, ports.definitions),
            streams=streams,
            health=_health(ports, settings),
            definitions=definitions,
            template_runs=TemplateRuns(
                definitions["template"],
                judge,
                submissions,
                ports.summaries,
                Bodies(settings),
            ),
            resubmissions=Resubmissions(ports.agendas, judge, submissions, Bodies(settings)),
            keys=Keys(ports.keys, ports.clock, Bodies(settings), ports.on_defined),
            audit=AuditReader(ports.audit),
            metrics=metrics,
            document=document.get,
        )
    )
    document.describe(table)
    app = web.Application(middlewares=[around_requests(metrics)])
    app.on_response_prepare.append(sign)
    app.cleanup_ctx.append(streams.run)
    app.on_shutdown.append(streams.close)
    app.on_shutdown.append(pulls.close)
    register(app, table, Guard(ports.authenticator, tick=pace.tick))
    return app


def _lone_door(definitions: DefinitionSource) -> Door:
    return Door("api", lambda one: definitions.current.customers.get(CustomerId(one)))


def _owners(ports: ApiPorts) -> Owners:
    return Owners(ports.summaries, ports.definitions, ports.definition_store, ports.keys)


def _judge(ports: ApiPorts, settings: Settings) -> Judge:
    return Judge(
        ports.definitions,
        lambda: ports.new_id(ports.clock.now()),
        largest=settings.max_agenda_bytes,
    )


def _resources(ports: ApiPorts, settings: Settings) -> Mapping[Kind, Resource]:
    bodies = Bodies(settings)
    return {
        kind: Resource(kind, ports.definition_store, bodies, ports.on_defined) for kind in KINDS
    }


def _commands(ports: ApiPorts, settings: Settings) -> Commands:
    return Commands(
        summaries=ports.summaries,
        agendas=ports.agendas,
        publisher=ports.publisher,
        clock=ports.clock,
        bodies=Bodies(settings),
        topic=Topics(settings.topic_prefix).agenda_events,
    )


def _pulls(ports: ApiPorts, settings: Settings, pace: Pace) -> Pulls:
    return Pulls(
        leases=LeaseBook(
            ports.desk,
            ports.summaries,
            ports.definitions,
            ports.clock,
            kept=min(
                settings.retain_succeeded, settings.retain_failed, settings.retain_stopped
            ),
            appears_within=pace.appears_within,
        ),
        signs=SignsOfLife(ports.hearsay, ports.definitions),
        desk=ports.desk,
        publisher=ports.publisher,
        clock=ports.clock,
        bodies=Bodies(settings),
        topic=Topics(settings.topic_prefix).agenda_events,
    )


def _health(ports: ApiPorts, settings: Settings) -> HealthChecks:
    topic = Topics(settings.topic_prefix).submissions
    return HealthChecks(ports.publisher, ports.summaries, topic=topic)
