"""Workers without Kafka: they pull agendas, and report on them, over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar

import structlog
from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from pop_stream.api.agendas.views import submitted
from pop_stream.api.http import body
from pop_stream.api.http.access import expect_still_authenticated, object_of, principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.pulls.leases import ATTEMPT, Lease, LeaseDirectory, attempt_of
from pop_stream.api.pulls.reports import (
    SignsOfLife,
    appended_of,
    check,
    diagnostics_of,
    progress_of,
)
from pop_stream.api_models.pulls import (
    Completion,
    Heartbeat,
    ProgressReport,
    PulledAgenda,
    PulledAgendas,
    PullRequest,
    ReportAcknowledgement,
)
from pop_stream.kafka.publisher import lifecycle_records
from pop_stream.model.errors import LeaseLostError, NotFoundError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.tenancy import display_id
from pop_stream.model.validation import issues_of
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import appended_name
from pop_stream.ports.clock import Clock
from pop_stream.ports.deliveries import HttpDeliveries
from pop_stream.ports.publisher import Publisher

_log = structlog.get_logger()

M = TypeVar("M", bound=BaseModel)


class PullEndpoints:
    """The handlers of pulling and reporting."""

    def __init__(  # noqa: PLR0913  # all that the handlers share, named once
        self,
        *,
        leases: LeaseDirectory,
        signs: SignsOfLife,
        desk: HttpDeliveries,
        publisher: Publisher,
        clock: Clock,
        body_reader: body.BodyReader,
        topic: str,
    ) -> None:
        self.leases = leases
        self.signs = signs
        self._deliveries = desk
        self._publisher = publisher
        self._clock = clock
        self._body_reader = body_reader
        self._topic = topic
        self._is_closing = False

    async def close(self, _: web.Application) -> None:
        """Let those who wait go; they will ask another process."""
        self._is_closing = True

    async def post_pull(self, request: web.Request) -> web.Response:
        """Claim agendas of an insight for the caller, waiting for the first."""
        pull = await self._read(request, PullRequest)
        insight_id, seen_by = object_of(request), principal_of(request).customer_id
        self.leases.expect_insight(insight_id)

        def is_connected() -> bool:
            return not self._is_closing and _has_connection(request)

        wait = timedelta(seconds=pull.wait_s)
        taken = await self._deliveries.take(
            insight_id, pull.count, wait, is_connected=is_connected
        )
        if taken and not await self._is_still_waiting(request, taken):
            return json_response(PulledAgendas(agendas=[]), status=HTTPStatus.OK)
        # One that was long on its way may have been given up, and handed out anew.
        taken = [one for one in taken if self.leases.is_current(one)]
        ends = await self._ends(taken)
        taken = [one for one in taken if one.agenda_id not in ends]
        # The lease began when the agenda was claimed; it begins anew for whom it is for.
        renewed = [self._renewed(one, pull.puller_id) for one in taken]
        await self._publish([*renewed, *ends.values()])
        agendas = await asyncio.gather(*(self._pulled(one, seen_by) for one in taken))
        _log.info("agendas.pulled", insight_id=insight_id, count=len(taken))
        return json_response(PulledAgendas(agendas=agendas), status=HTTPStatus.OK)

    async def post_heartbeat(self, request: web.Request) -> web.Response:
        """Renew the lease."""
        heartbeat = await self._read(request, Heartbeat)
        lease = await self._lease(request)
        renewed = AgendaHeartbeat(
            **self._event_fields(lease), puller_id=heartbeat.puller_id, lease_ms=lease.lease_ms
        )
        await self._publish([renewed])
        return self._acknowledge(request, lease)

    async def post_progress(self, request: web.Request) -> web.Response:
        """Report on operations, append others, and renew the lease."""
        report = await self._read(request, ProgressReport)
        lease = await self._lease(request, whole=report.append is not None)
        new = appended_of(lease, report.append, self._clock.now())
        check(lease, report.operations, new)
        renewed = AgendaHeartbeat(
            **self._event_fields(lease), puller_id=report.puller_id, lease_ms=lease.lease_ms
        )
        told: list[LifecycleEvent] = [renewed]
        if new or report.operations:
            operations = progress_of(report.operations, self._clock.now())
            told.append(
                AgendaProgressed(
                    **self._event_fields(lease), operations=operations, appended=new
                )
            )
        await self._publish(told)
        return self._acknowledge(request, lease, new)

    async def post_complete(self, request: web.Request) -> web.Response:
        """Tell how the attempt ended; the lease ends with it."""
        end = await self._read(request, Completion)
        lease = await self._lease(request, whole=True)
        check(lease, end.operations)
        await self._publish([self._ended(lease, end)])
        _log.info(f"agenda.{end.outcome}", agenda_id=lease.agenda_id, attempt=lease.attempt)
        return self._acknowledge(request, lease)

    # ---- what the handlers share ----

    async def _is_still_waiting(
        self, request: web.Request, taken: Sequence[EmittedAgenda]
    ) -> bool:
        """Whether the caller is still there and known; else all of it is the next one's.

        Raises:
            UnauthenticatedError: If its key or token has ended while it waited.
        """
        is_connected = False
        try:
            await expect_still_authenticated(request)
            is_connected = _has_connection(request)
        finally:
            if not is_connected:
                for emitted in taken:
                    self._deliveries.return_delivery(emitted)
        return is_connected

    async def _read(self, request: web.Request, shape: type[M]) -> M:
        async with self._body_reader.read(request) as content:
            body.expect_json(content)
            try:
                return TypeAdapter(shape).validate_json(bytes(content), strict=True)
            except ValidationError as error:
                raise InvalidError(issues_of(error, document="body")) from None

    async def _lease(self, request: web.Request, *, whole: bool = False) -> Lease:
        agenda_id, named = object_of(request), request.match_info["attempt"]
        attempt = attempt_of(named)
        if attempt is None:
            raise NotFoundError(ATTEMPT, f"{request.match_info['agenda_id']}/{named[:20]}")
        try:
            return await self.leases.find(agenda_id, attempt, whole=whole)
        except LeaseLostError:
            delivered = self._deliveries.lease(agenda_id)
            if delivered is not None and delivered.attempt == attempt:
                await self._publish([*(await self._ends([delivered])).values()])
            raise

    async def _ends(self, delivered: Sequence[EmittedAgenda]) -> Mapping[str, LifecycleEvent]:
        """By agenda, the ends of attempts of what had ended before.

        The summaries stay as they are; the scheduler, which took the attempts before for lost,
        hears of the ends only so.
        """
        states = await asyncio.gather(*map(self.leases.ended_in_earlier_attempt, delivered))
        return {
            one.agenda_id: self._repeat_end(one, state)
            for one, state in zip(delivered, states, strict=True)
            if state is not None
        }

    async def _publish(self, lifecycle: Sequence[LifecycleEvent]) -> None:
        if lifecycle:
            records = await lifecycle_records(self._publisher, self._topic, lifecycle)
            await self._publisher.publish(records)

    def _acknowledge(
        self, request: web.Request, lease: Lease, new: Sequence[AppendedOperation] = ()
    ) -> web.Response:
        stop = self._deliveries.stop(lease.agenda_id, lease.attempt)
        names = [appended_name(one) for one in new]
        acknowledgement = ReportAcknowledgement(
            agenda_id=request.match_info["agenda_id"],
            attempt=lease.attempt,
            lease_ms=lease.lease_ms,
            stop=None if stop == "outdated" else stop,
            appended=names,
        )
        return json_response(acknowledgement, status=HTTPStatus.OK)

    def _event_fields(self, lease: Lease) -> dict[str, Any]:
        return {
            "agenda_id": lease.agenda_id,
            "at": self._clock.now(),
            "insight_id": lease.insight_id,
            "attempt": lease.attempt,
        }

    def _renewed(self, emitted: EmittedAgenda, puller_id: str) -> AgendaHeartbeat:
        return AgendaHeartbeat(
            agenda_id=emitted.agenda_id,
            at=self._clock.now(),
            insight_id=emitted.insight_id,
            attempt=emitted.attempt,
            puller_id=puller_id,
            lease_ms=emitted.lease_ms,
        )

    def _repeat_end(self, emitted: EmittedAgenda, state: State) -> LifecycleEvent:
        facts: dict[str, Any] = {
            "agenda_id": emitted.agenda_id,
            "at": self._clock.now(),
            "insight_id": emitted.insight_id,
            "attempt": emitted.attempt,
        }
        if state is State.SUCCEEDED:
            return AgendaSucceeded(**facts)
        why = f"the agenda had ended before, {state.value}"
        return AgendaFailed(**facts, message=why, retryable=False)

    def _ended(self, lease: Lease, end: Completion) -> LifecycleEvent:
        at = self._clock.now()
        facts = {
            **self._event_fields(lease),
            "operations": progress_of(end.operations, at),
            "spent_s": dict(end.spent_s),
        }
        match end.outcome:
            case "succeeded":
                return AgendaSucceeded(**facts)
            case "stopped":
                return AgendaStopped(**facts)
            case "failed":
                return AgendaFailed(
                    **facts,
                    message=end.message or "the worker says so",
                    retryable=end.retryable,
                    diagnostics=diagnostics_of(end.diagnostics, at),
                )

    async def _pulled(self, emitted: EmittedAgenda, seen_by: str | None) -> PulledAgenda:
        return PulledAgenda(
            agenda_id=display_id(emitted.agenda_id, seen_by),
            insight_id=emitted.insight_id,
            customer_id=emitted.customer_id,
            attempt=emitted.attempt,
            lease_ms=emitted.lease_ms,
            accepted_at=emitted.accepted_at,
            emitted_at=emitted.emitted_at,
            agenda=submitted(bytes(emitted.agenda), seen_by),
            resumes=emitted.resumes,
            progress=await self.leases.prior(emitted, seen_by) if emitted.resumes else None,
        )


def _has_connection(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()
