"""The client: every operation of the API by name, each group of them a `Calls` of its own."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from pop_stream.api_models.base import DoctorReport, Health, Readiness
from pop_stream.api_models.keys import CallerView
from pop_stream.api_models.queues import ForecastView, HealthReportView, QueueView
from pop_stream.api_models.schedules import (
    Backfill,
    CommandedSchedule,
    NextInstants,
    OccurrenceList,
    OccurrenceSelection,
    ScheduleProgress,
)
from pop_stream.api_models.submissions import AcceptedAgenda, Preview, SplitPreview
from pop_stream.client.agendas import AgendaCalls
from pop_stream.client.commands import CommandCalls
from pop_stream.client.completions import CompletionCalls
from pop_stream.client.content import decoded, is_named, to_json
from pop_stream.client.dead_letters import DeadLetterCalls
from pop_stream.client.definitions import DefinitionCalls
from pop_stream.client.errors import ApiUnavailableError
from pop_stream.client.keys import AuditCalls, KeyCalls
from pop_stream.client.pulls import PullCalls
from pop_stream.client.stats import StatsCalls
from pop_stream.client.transport import RETRY, Call, Calls, Retry, Transport, pairs
from pop_stream.client.waits import OperationCalls, SignalCalls
from pop_stream.model.definitions import Customer, Insight, ResourcePool
from pop_stream.model.schedule import Schedule
from pop_stream.model.template import AgendaTemplate, TemplateCall


class InsightCalls(DefinitionCalls[Insight]):
    """Insights, and how it goes in them."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "insights", Insight)

    async def queue(self, insight_id: str) -> QueueView:
        """What waits in an insight, whose it is, and how fast it goes.

        Raises:
            NotFoundError: If there is none, or none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.read(QueueView, "insights", insight_id, "queue")

    async def forecast(self, insight_id: str, weights: Mapping[str, float]) -> ForecastView:
        """Who would start when if these customers had these weights; nothing is changed.

        Raises:
            NotFoundError: If there is no such insight.
            ApiRefusedError: If a weight is none; `issues` say why.
            ApiForbiddenError: If the caller is no operator.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            ForecastView,
            "insights",
            insight_id,
            "forecast",
            body=to_json({"weights": dict(weights)}),
            is_repeatable=True,
        )

    async def report_health(
        self,
        insight_id: str,
        coefficient: float,
        *,
        ttl: timedelta = timedelta(minutes=5),
        source: str = "manual",
        reason: str = "",
    ) -> HealthReportView:
        """Put a value of an insight's health in the place of this source's last one.

        Args:
            insight_id: The caller's own.
            coefficient: From 0, which emits nothing, to 1; the worst of all sources counts.
            ttl: After so long it is void, unless it is reported again.
            source: A name of its own.
            reason: Shown to whoever asks why an agenda waits.

        Raises:
            NotFoundError: If there is none, or none that the caller may see.
            ApiRefusedError: If a value is out of range.
            ApiError: If there is no answer.
        """
        report = {
            "coefficient": coefficient,
            "ttl_s": ttl.total_seconds(),
            "source": source,
            "reason": reason,
        }
        answer = await self._send("PUT", insight_id, "health", body=to_json(report))
        return decoded(answer.body, HealthReportView)


class ServiceCalls(Calls):
    """How the process at the other end is."""

    async def health(self) -> Health:
        """The process is alive, whatever else is away.

        Raises:
            ApiError: If it is not.
        """
        return decoded(await self._get("/healthz"), Health)

    async def readiness(self) -> Readiness:
        """Kafka and Postgres answer; asked once.

        Raises:
            ApiUnavailableError: If they do not; `problem.parts` says which is away.
        """
        return decoded(await self._get("/readyz", is_probe=True), Readiness)

    async def is_ready(self) -> bool:
        """Whether the API answers and says that all it depends on does."""
        try:
            await self.readiness()
        except ApiUnavailableError:
            return False
        return True

    async def metrics(self) -> str:
        """Metrics in the text format of Prometheus.

        Raises:
            ApiError: If there is no answer.
        """
        return (await self._get("/metrics")).decode()

    async def caller(self) -> CallerView:
        """Who the API takes this client for, and what it may do.

        Raises:
            ApiUnauthenticatedError: If it does not know the token.
            ApiError: If there is no answer.
        """
        return await self._transport.read(CallerView, "me")

    async def doctor(self) -> DoctorReport:
        """What is wrong with the installation, in words; for admins.

        Raises:
            ApiError: If there is no answer.
        """
        return await self._transport.read(DoctorReport, "doctor")

    async def document(self) -> dict[str, Any]:
        """The OpenAPI document.

        Raises:
            ApiError: If there is no answer.
        """
        return decoded(await self._get("/openapi.json"), dict[str, Any])

    async def _get(self, place: str, *, is_probe: bool = False) -> bytes:
        call = Call(method="GET", path=place, is_repeatable=True, is_probe=is_probe)
        return (await self._transport.send(call)).body


class TemplateCalls(DefinitionCalls[AgendaTemplate]):
    """Agenda templates, and their runs."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "agenda-templates", AgendaTemplate)

    async def run(
        self, template_id: str, call: TemplateCall | Mapping[str, Any] | None = None
    ) -> AcceptedAgenda:
        """Submit the agenda that a template makes of a payload and parameters.

        It is sent again while the API does not answer only if the call names the agenda's
        `id`.

        Args:
            template_id: Of the template.
            call: `payload`, `params`, and fields of the agenda that win over the template's.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If the call or the agenda is not sound; `issues` say why.
            ApiConflictError: If something else was accepted under the agenda's id.
            ApiError: If there is no answer.
        """
        content = {} if call is None else call
        return await self._transport.post(
            AcceptedAgenda,
            "agenda-templates",
            template_id,
            "run",
            body=to_json(content),
            is_repeatable=is_named(content),
        )

    async def preview(
        self, template_id: str, call: TemplateCall | Mapping[str, Any] | None = None
    ) -> Preview:
        """That agenda and where it would go; nothing is submitted.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If the call or the agenda is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            Preview,
            "agenda-templates",
            template_id,
            "preview",
            body=to_json({} if call is None else call),
            is_repeatable=True,
        )

    async def preview_split(
        self, template_id: str, call: TemplateCall | Mapping[str, Any] | None = None
    ) -> SplitPreview:
        """How many agendas a run would be divided among; nothing is submitted.

        Raises:
            NotFoundError: If there is no template, or none that the caller may see.
            ApiRefusedError: If the template does not divide its runs, or the payload cannot be
                divided; `issues` say why.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            SplitPreview,
            "agenda-templates",
            template_id,
            "split-preview",
            body=to_json({} if call is None else call),
            is_repeatable=True,
        )


class ScheduleCalls(DefinitionCalls[Schedule]):
    """Schedules: their definitions, when they fire, how far they are, and commands.

    A command that was not answered may have been carried out; none is sent again.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "schedules", Schedule)

    async def next(self, schedule_id: str, *, n: int = 5) -> NextInstants:
        """When it fires next, at most 100 times.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        query = (("n", str(n)),)
        return await self._transport.read(
            NextInstants, "schedules", schedule_id, "next", query=query
        )

    async def progress(self, schedule_id: str) -> ScheduleProgress:
        """How far it has come, a moment ago.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.read(
            ScheduleProgress, "schedules", schedule_id, "progress"
        )

    async def occurrences(
        self, schedule_id: str, where: OccurrenceSelection | None = None
    ) -> OccurrenceList:
        """A page of what was due, latest first, with what became of it.

        Args:
            schedule_id: Of another customer's work nothing is listed.
            where: Which, and how many; `nominal_before` is `next` of the page before.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If a field of the filter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        chosen = where or OccurrenceSelection()
        fields = chosen.model_dump(mode="json", exclude_defaults=True)
        query = pairs(
            {
                name: [str(one) for one in value] if isinstance(value, list) else str(value)
                for name, value in fields.items()
            }
        )
        return await self._transport.read(
            OccurrenceList, "schedules", schedule_id, "occurrences", query=query
        )

    async def trigger(self, schedule_id: str) -> CommandedSchedule:
        """Submit an occurrence for now.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._command(schedule_id, "trigger")

    async def resume(self, schedule_id: str) -> CommandedSchedule:
        """End the pause that failures have led to; `paused` of the definition stays.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._command(schedule_id, "resume")

    async def backfill(
        self, schedule_id: str, first: datetime, last: datetime
    ) -> CommandedSchedule:
        """Submit the occurrences of a range, both ends included, 1,000 at most.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If the range has none, or too many.
            ApiError: If there is no answer.
        """
        return await self._command(schedule_id, "backfill", Backfill(first=first, last=last))

    async def _command(
        self, schedule_id: str, action: str, body: Backfill | None = None
    ) -> CommandedSchedule:
        return await self._transport.post(
            CommandedSchedule,
            "schedules",
            schedule_id,
            action,
            body=None if body is None else to_json(body),
            is_repeatable=False,
        )


TIMEOUT: Final = timedelta(seconds=30)


class Client(AgendaCalls, CommandCalls, PullCalls, ServiceCalls):
    """One API, and one caller of it; enter it before use, and share it between tasks.

    What is sent again, and when, `Retry` says. An async iterator that is left early holds its
    connection until it is closed: `contextlib.aclosing` does that at once.

    Args:
        url: Where the API listens, such as `http://127.0.0.1:8080`.
        token: An API key, or a token of the API's issuer; None shows none.
        timeout: For each answer, and besides for as long as a pull waits.
        retry: When a request is sent again.
        headers: Asked before every request for headers to add, such as those that a tracing
            library makes; `tracing` passes on what came in.

    Attributes:
        customers: Definitions of customers.
        pools: Definitions of resource pools.
        insights: Definitions of insights, and their queues.
        templates: Definitions of agenda templates, and their runs.
        schedules: Definitions of schedules, and what is due of them.
        keys: API keys.
        audit: Who changed what.
        dead_letters: What came to nothing and waits for a person.
        signals: What work waits for, and customers give.
        completions: Of operations that were handed over, by their tokens.
        stats: What was counted by hour, and what customers had of workers.
        operations: Those that wait for a person, who approves or rejects them.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: timedelta = TIMEOUT,
        retry: Retry = RETRY,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._call_by(
            Transport(url, token=token, timeout=timeout, retry=retry, headers=headers)
        )

    def _call_by(self, transport: Transport) -> None:
        super().__init__(transport)
        self.customers = DefinitionCalls(transport, "customers", Customer)
        self.pools = DefinitionCalls(transport, "pools", ResourcePool)
        self.insights = InsightCalls(transport)
        self.templates = TemplateCalls(transport)
        self.schedules = ScheduleCalls(transport)
        self.keys = KeyCalls(transport)
        self.audit = AuditCalls(transport)
        self.dead_letters = DeadLetterCalls(transport)
        self.signals = SignalCalls(transport)
        self.completions = CompletionCalls(transport)
        self.stats = StatsCalls(transport)
        self.operations = OperationCalls(transport)

    @property
    def url(self) -> str:
        """Where the API listens."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.close()
