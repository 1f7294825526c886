"""The application: everything the API is made of, put together."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from aiohttp import web
from prometheus_client import CollectorRegistry

from pop_stream.api.agendas.commands import CommandEndpoints
from pop_stream.api.agendas.queries import QueueEndpoints
from pop_stream.api.agendas.reads import AgendaListEndpoints, ProgressEndpoints
from pop_stream.api.agendas.streams import StreamEndpoints, StreamTiming
from pop_stream.api.dead_letters.endpoints import DeadLetterEndpoints
from pop_stream.api.dead_letters.redrive import Redriver
from pop_stream.api.definitions.insight_health import InsightHealthEndpoints
from pop_stream.api.definitions.resource import DefinitionEndpoints
from pop_stream.api.definitions.schedules import ScheduleEndpoints, StateOf
from pop_stream.api.health import DoctorEndpoints, HealthEndpoints
from pop_stream.api.http.access import AccessGuard, AllowAll, ForeignPages, RequestAuthenticator
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.openapi import Document
from pop_stream.api.http.server import Metrics, add_correlation_id, around_requests
from pop_stream.api.keys.keys import AuditEndpoints, KeyEndpoints
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.leases import LeaseVerifier
from pop_stream.api.pulls.pullers import PullerEndpoints
from pop_stream.api.pulls.pulls import PullEndpoints
from pop_stream.api.routes.table import Endpoints, register, routes
from pop_stream.api.stats.endpoints import StatsEndpoints
from pop_stream.api.submissions.duplicates import DuplicateFinder
from pop_stream.api.submissions.repeats import SubmissionDeduplicator
from pop_stream.api.submissions.resubmissions import ResubmissionEndpoints
from pop_stream.api.submissions.submissions import (
    SubmissionEndpoints,
    SubmissionQuota,
    time_ordered_id,
)
from pop_stream.api.submissions.template_runs import TemplateRunEndpoints
from pop_stream.api.submissions.validator import SubmissionValidator
from pop_stream.api.waits.completions import CompletionEndpoints
from pop_stream.api.waits.endpoints import DecisionEndpoints, SignalEndpoints
from pop_stream.extensions import period_resolvers
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import KINDS, Kind
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.policy.lease_token import LeaseTokens
from pop_stream.ports.agendas import AgendaStore
from pop_stream.ports.audit import AuditLog
from pop_stream.ports.clock import Clock
from pop_stream.ports.completions import CompletionStore
from pop_stream.ports.dead_letters import DeadLetterStore
from pop_stream.ports.definitions import DefinitionSource, DefinitionStore
from pop_stream.ports.deliveries import HttpDeliveries
from pop_stream.ports.keys import KeyStore
from pop_stream.ports.occurrences import OccurrenceStore
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.pullers import PullerReader
from pop_stream.ports.queries import QueueQueries
from pop_stream.ports.signals import SignalStore
from pop_stream.ports.stats import StatsReader
from pop_stream.ports.summaries import SummaryReader
from pop_stream.settings import Settings


async def no_findings() -> Sequence[str]:
    """Nothing is examined."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPorts:
    """The ports that the API is given.

    Attributes:
        definition_store: The truth, of which `definitions` is a copy.
        on_defined: Called after every change of a definition.
        new_id: Makes an id, at an instant, for an agenda that has none.
        examine: Says what is wrong with the installation, in words.
        policies: Asked about every submission.
        rankers: The operator's own, by the names that insights call them.
        schedule_state: Where a schedule has come to; None while that is not known.
        quota_ledger: Holds customers to their quotas; None for one that shares no counts.
    """

    publisher: Publisher
    summaries: SummaryReader
    agendas: AgendaStore
    definitions: DefinitionSource
    definition_store: DefinitionStore
    keys: KeyStore
    audit: AuditLog
    questions: QueueQueries
    deliveries: HttpDeliveries
    dead_letters: DeadLetterStore
    stats: StatsReader
    pullers: PullerReader
    signals: SignalStore
    completions: CompletionStore
    occurrences: OccurrenceStore
    clock: Clock
    on_defined: Callable[[], None] = lambda: None
    examine: Callable[[], Awaitable[Sequence[str]]] = no_findings
    new_id: Callable[[datetime], str] = time_ordered_id
    authenticator: RequestAuthenticator = field(default_factory=AllowAll)
    quota_ledger: QuotaLedger | None = None
    policies: Sequence[AdmissionPolicy] = BUILT_IN
    rankers: Mapping[str, RankFunction] = field(default_factory=dict)
    schedule_state: StateOf = lambda _: None


def create_app(
    ports: ApiPorts,
    settings: Settings,
    *,
    registry: CollectorRegistry | None = None,
    timing: StreamTiming | None = None,
) -> web.Application:
    """The application, not yet listening; the ports must be open for as long as it runs.

    Args:
        ports: What it works with.
        settings: Names and limits.
        registry: Shown at `/metrics`; one of its own by default.
        timing: Times of event streams.
    """
    timing = timing or StreamTiming()
    metrics = Metrics(registry or CollectorRegistry())
    document = Document(requires_authentication=settings.requires_authentication)
    endpoints = _endpoints(ports, settings, metrics, document, timing)
    table = routes(endpoints)
    document.describe(table)
    submitting = frozenset(route.path for route in table if route.submits)
    app = web.Application(middlewares=[around_requests(metrics, submitting)])
    app.on_response_prepare.append(add_correlation_id)
    app.cleanup_ctx.append(endpoints.streams.run)
    app.on_shutdown.append(endpoints.streams.close)
    app.on_shutdown.append(endpoints.pulls.close)
    is_open = not settings.requires_authentication
    foreign_pages = ForeignPages(settings.api_names) if is_open else None
    guard = AccessGuard(ports.authenticator, tick=timing.tick, foreign_pages=foreign_pages)
    register(app, table, guard)
    return app


def _endpoints(
    ports: ApiPorts,
    settings: Settings,
    metrics: Metrics,
    document: Document,
    timing: StreamTiming,
) -> Endpoints:
    body_reader = BodyReader(settings)
    validator = _submission_validator(ports, settings)
    submissions = _submissions(ports, settings, metrics, validator, body_reader)
    definitions = _definitions(ports, body_reader)
    return Endpoints(
        owners=_owners(ports),
        submissions=submissions,
        progress=ProgressEndpoints(ports.summaries),
        commands=_commands(ports, settings, body_reader),
        lists=AgendaListEndpoints(ports.agendas),
        pulls=_pulls(ports, settings, body_reader),
        pullers=PullerEndpoints(ports.pullers),
        queue_endpoints=QueueEndpoints(
            ports.questions, ports.summaries, ports.definitions, body_reader
        ),
        insight_health=_insight_health(ports, settings, body_reader),
        streams=_streams(ports, settings, metrics, timing),
        health=_health(ports, settings),
        doctor=DoctorEndpoints(ports.examine, ports.clock),
        definitions=definitions,
        schedules=_schedules(ports, settings, definitions["schedule"], body_reader),
        template_runs=_template_runs(ports, definitions, validator, submissions, body_reader),
        resubmissions=ResubmissionEndpoints(ports.agendas, validator, submissions, body_reader),
        stats=StatsEndpoints(ports.stats, ports.clock),
        keys=KeyEndpoints(ports.keys, ports.clock, body_reader, ports.on_defined),
        audit=AuditEndpoints(ports.audit),
        dead_letters=_dead_letters(ports, settings, validator, submissions, body_reader),
        signals=SignalEndpoints(ports.signals, ports.clock, body_reader),
        decisions=_decisions(ports, settings, body_reader),
        completions=_completions(ports, settings, body_reader),
        metrics=metrics,
        document=document.get,
    )


def _template_runs(
    ports: ApiPorts,
    definitions: Mapping[Kind, DefinitionEndpoints],
    validator: SubmissionValidator,
    submissions: SubmissionEndpoints,
    body_reader: BodyReader,
) -> TemplateRunEndpoints:
    return TemplateRunEndpoints(
        definitions["template"], validator, submissions, ports.summaries, body_reader
    )


def _decisions(
    ports: ApiPorts, settings: Settings, body_reader: BodyReader
) -> DecisionEndpoints:
    return DecisionEndpoints(
        summaries=ports.summaries,
        publisher=ports.publisher,
        clock=ports.clock,
        body_reader=body_reader,
        settings=settings,
        audit_log=ports.audit,
    )


def _completions(
    ports: ApiPorts, settings: Settings, body_reader: BodyReader
) -> CompletionEndpoints:
    return CompletionEndpoints(
        completions=ports.completions,
        summaries=ports.summaries,
        definitions=ports.definitions,
        clock=ports.clock,
        body_reader=body_reader,
        settings=settings,
    )


def _definitions(
    ports: ApiPorts, body_reader: BodyReader
) -> Mapping[Kind, DefinitionEndpoints]:
    return {
        kind: DefinitionEndpoints(kind, ports.definition_store, body_reader, ports.on_defined)
        for kind in KINDS
    }


def _streams(
    ports: ApiPorts, settings: Settings, metrics: Metrics, timing: StreamTiming
) -> StreamEndpoints:
    return StreamEndpoints(ports.summaries, metrics, timing, max_streams=settings.max_streams)


def _submissions(
    ports: ApiPorts,
    settings: Settings,
    metrics: Metrics,
    validator: SubmissionValidator,
    body_reader: BodyReader,
) -> SubmissionEndpoints:
    return SubmissionEndpoints(
        validator,
        ports.publisher,
        SubmissionDeduplicator(ports.summaries, ports.clock),
        DuplicateFinder(ports.questions),
        SubmissionQuota(ports.quota_ledger or _local_quota_ledger(ports.definitions)),
        body_reader,
        settings=settings,
        metrics=metrics,
    )


def _dead_letters(
    ports: ApiPorts,
    settings: Settings,
    validator: SubmissionValidator,
    submissions: SubmissionEndpoints,
    body_reader: BodyReader,
) -> DeadLetterEndpoints:
    redriver = Redriver(
        store=ports.dead_letters,
        summaries=ports.summaries,
        validator=validator,
        submissions=submissions,
        publisher=ports.publisher,
        clock=ports.clock,
        settings=settings,
    )
    return DeadLetterEndpoints(ports.dead_letters, redriver, ports.audit, body_reader)


def _schedules(
    ports: ApiPorts,
    settings: Settings,
    schedules: DefinitionEndpoints,
    body_reader: BodyReader,
) -> ScheduleEndpoints:
    return ScheduleEndpoints(
        schedules,
        ports.schedule_state,
        ports.publisher,
        occurrences=ports.occurrences,
        topic=Topics(settings.topic_prefix).occasions,
        clock=ports.clock,
        body_reader=body_reader,
    )


def _local_quota_ledger(definitions: DefinitionSource) -> QuotaLedger:
    return QuotaLedger(
        "api",
        lambda one: definitions.current.customers.get(CustomerId(one)),
        lambda one: definitions.current.insights.get(InsightId(one)),
    )


def _owners(ports: ApiPorts) -> Owners:
    return Owners(
        ports.summaries,
        ports.definitions,
        ports.definition_store,
        ports.keys,
        ports.dead_letters,
    )


def _submission_validator(ports: ApiPorts, settings: Settings) -> SubmissionValidator:
    return SubmissionValidator(
        ports.definitions,
        lambda: ports.new_id(ports.clock.now()),
        largest=settings.max_agenda_bytes,
        defined_only=settings.defined_customers_only,
        resolvers=period_resolvers(),
        policies=ports.policies,
        rankers=ports.rankers,
        now=ports.clock.now,
    )


def _commands(ports: ApiPorts, settings: Settings, body_reader: BodyReader) -> CommandEndpoints:
    return CommandEndpoints(
        summaries=ports.summaries,
        agendas=ports.agendas,
        publisher=ports.publisher,
        clock=ports.clock,
        body_reader=body_reader,
        settings=settings,
        audit_log=ports.audit,
    )


def _pulls(ports: ApiPorts, settings: Settings, body_reader: BodyReader) -> PullEndpoints:
    return PullEndpoints(
        leases=LeaseVerifier(
            LeaseTokens(settings.lease_signing_keys),
            ports.deliveries,
            ports.summaries,
            ports.definitions,
            ports.clock,
            retention=min(
                settings.retain_succeeded, settings.retain_failed, settings.retain_stopped
            ),
        ),
        deliveries=ports.deliveries,
        publisher=ports.publisher,
        clock=ports.clock,
        body_reader=body_reader,
        settings=settings,
    )


def _insight_health(
    ports: ApiPorts, settings: Settings, body_reader: BodyReader
) -> InsightHealthEndpoints:
    return InsightHealthEndpoints(
        ports.publisher,
        ports.definitions,
        ports.clock,
        body_reader,
        topics=Topics(settings.topic_prefix),
    )


def _health(ports: ApiPorts, settings: Settings) -> HealthEndpoints:
    topic = Topics(settings.topic_prefix).submissions
    return HealthEndpoints(ports.publisher, ports.summaries, topic=topic)
