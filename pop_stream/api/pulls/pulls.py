"""Workers without Kafka: they pull agendas, and report on them, over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from pop_stream.api.agendas.views import operation_types, progress_view, submitted
from pop_stream.api.http import body
from pop_stream.api.http.access import expect_still_authenticated, object_of, principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.pulls.leases import LeaseVerifier
from pop_stream.api.pulls.reports import (
    appended_of,
    check,
    check_waits,
    deferred_event,
    diagnostics_of,
    expect_all_succeeded,
    hand_overs,
    may_have_succeeded,
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
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import LeaseLostError, UnservedError
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
from pop_stream.policy.completion_token import CompletionTokens
from pop_stream.policy.lease_token import LeaseClaims
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary, appended_name, operations_of
from pop_stream.ports.clock import Clock
from pop_stream.ports.deliveries import HttpDeliveries
from pop_stream.ports.publisher import Publisher, RecordMetadata
from pop_stream.settings import Settings

_log = structlog.get_logger()


class PullEndpoints:
    """The handlers of pulling and reporting."""

    def __init__(  # all that the handlers share, named once
        self,
        *,
        leases: LeaseVerifier,
        deliveries: HttpDeliveries,
        publisher: Publisher,
        clock: Clock,
        body_reader: body.BodyReader,
        settings: Settings,
    ) -> None:
        self._leases = leases
        self._deliveries = deliveries
        self._publisher = publisher
        self._clock = clock
        self._body_reader = body_reader
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._completion_tokens = CompletionTokens(settings.lease_signing_keys)
        self._is_closing = False

    async def close(self, _: web.Application) -> None:
        """Let those who wait go; they will ask another process."""
        self._is_closing = True

    async def post_pull(self, request: web.Request) -> web.Response:
        """Claim agendas of an insight for the caller, waiting for the first."""
        pull = await self._body_reader.read_model(request, PullRequest)
        insight_id, seen_by = object_of(request), principal_of(request).customer_id
        self._leases.expect_insight(insight_id)

        def is_connected() -> bool:
            return not self._is_closing and _has_connection(request)

        wait = timedelta(seconds=pull.wait_s)
        taken = await self._deliveries.poll(
            insight_id, pull.count, wait, is_connected=is_connected
        )
        if taken and not await self._is_still_waiting(request, taken):
            return json_response(PulledAgendas(agendas=[]), status=HTTPStatus.OK)
        # One that was long on its way may have been given up, and handed out anew.
        taken = [one for one in taken if not self._leases.is_outdated(LeaseClaims.of(one))]
        ends = await self._ends([*map(LeaseClaims.of, taken)])
        taken = [one for one in taken if one.agenda_id not in ends]
        # The lease began when the agenda was claimed; it begins anew for whom it is for.
        renewed = [self._heartbeat(LeaseClaims.of(one), pull.puller_id) for one in taken]
        await self._publish([*renewed, *ends.values()])
        agendas = await asyncio.gather(*(self._pulled(one, seen_by) for one in taken))
        _log.info("agendas.pulled", insight_id=insight_id, count=len(taken))
        return json_response(PulledAgendas(agendas=agendas), status=HTTPStatus.OK)

    async def post_heartbeat(self, request: web.Request) -> web.Response:
        """Renew the lease."""
        heartbeat = await self._body_reader.read_model(request, Heartbeat)
        claims = self._claims(request, heartbeat)
        await self._check(claims)
        await self._publish([self._heartbeat(claims, heartbeat.puller_id)])
        return self._acknowledge(request, claims)

    async def post_progress(self, request: web.Request) -> web.Response:
        """Report on operations, append others, and renew the lease."""
        report = await self._body_reader.read_model(request, ProgressReport)
        claims = self._claims(request, report)
        whole = bool(report.operations) or report.append is not None
        summary = await self._check(claims, whole=whole)
        new: tuple[AppendedOperation, ...] = ()
        if report.append is not None:
            if summary is None:
                msg = "operations can be appended only while the agenda's summary can be read"
                raise UnservedError(msg)
            new = appended_of(operations_of(summary), report.append, self._clock.now())
        check(summary, report.operations, new)
        events: list[LifecycleEvent] = [self._heartbeat(claims, report.puller_id)]
        if new or report.operations:
            operations = progress_of(report.operations, self._clock.now())
            fields = self._event_fields(claims)
            events.append(AgendaProgressed(**fields, operations=operations, appended=new))
        written = await self._publish(events)
        if new:
            # The next report, be it on them or the end, is judged by a summary that has them.
            await self._leases.summary_past(claims, self._topic, written)
        return self._acknowledge(request, claims, new)

    async def post_complete(self, request: web.Request) -> web.Response:
        """Report how the attempt ended; the lease ends with it."""
        end = await self._body_reader.read_model(request, Completion)
        claims = self._claims(request, end)
        is_success = end.outcome == "succeeded"
        whole = bool(end.operations or end.waits) or is_success
        summary = await self._check(claims, whole=whole)
        check(summary, end.operations)
        check_waits(summary, end)
        if is_success and not may_have_succeeded(
            summary, end.operations, unfinished=claims.unfinished
        ):
            # Earlier reports may be on their way: the summary has them before a later one.
            written = await self._publish([self._heartbeat(claims, end.puller_id)])
            summary = await self._leases.summary_past(claims, self._topic, written)
            expect_all_succeeded(summary, end.operations)
        await self._publish([self._ended(claims, end, summary)])
        _log.info(f"agenda.{end.outcome}", agenda_id=claims.agenda_id, attempt=claims.attempt)
        return self._acknowledge(request, claims)

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

    def _claims(self, request: web.Request, report: Heartbeat) -> LeaseClaims:
        path = request.match_info
        principal = principal_of(request)
        return self._leases.claims(
            report.lease_token, path["agenda_id"], path["attempt"], principal
        )

    async def _check(self, claims: LeaseClaims, *, whole: bool = False) -> Summary | None:
        try:
            return await self._leases.check(claims, whole=whole)
        except LeaseLostError:
            await self._publish([*(await self._ends([claims])).values()])
            raise

    async def _ends(self, attempts: Sequence[LeaseClaims]) -> Mapping[str, LifecycleEvent]:
        """By agenda, the ends of attempts of what had ended before.

        The summaries stay as they are; the scheduler, which took the attempts before for lost,
        learns of the ends only so.
        """
        states = await asyncio.gather(*map(self._leases.ended_in_earlier_attempt, attempts))
        return {
            one.agenda_id: self._repeat_end(one, state)
            for one, state in zip(attempts, states, strict=True)
            if state is not None
        }

    async def _publish(self, lifecycle: Sequence[LifecycleEvent]) -> Sequence[RecordMetadata]:
        if not lifecycle:
            return ()
        records = await lifecycle_records(self._publisher, self._topic, lifecycle)
        return await self._publisher.publish(records)

    def _acknowledge(
        self, request: web.Request, claims: LeaseClaims, new: Sequence[AppendedOperation] = ()
    ) -> web.Response:
        stop = self._deliveries.stop_reason(
            claims.agenda_id, claims.attempt, claims.accepted_at
        )
        names = [appended_name(one) for one in new]
        acknowledgement = ReportAcknowledgement(
            agenda_id=request.match_info["agenda_id"],
            attempt=claims.attempt,
            lease_ms=claims.lease_ms,
            stop=None if stop == "outdated" else stop,
            appended=names,
        )
        return json_response(acknowledgement, status=HTTPStatus.OK)

    def _event_fields(self, claims: LeaseClaims) -> dict[str, Any]:
        return {
            "agenda_id": claims.agenda_id,
            "at": self._clock.now(),
            "insight_id": claims.insight_id,
            "attempt": claims.attempt,
        }

    def _heartbeat(self, claims: LeaseClaims, puller_id: str) -> AgendaHeartbeat:
        return AgendaHeartbeat(
            **self._event_fields(claims), puller_id=puller_id, lease_ms=claims.lease_ms
        )

    def _repeat_end(self, claims: LeaseClaims, state: State) -> LifecycleEvent:
        fields = self._event_fields(claims)
        if state is State.SUCCEEDED:
            return AgendaSucceeded(**fields)
        why = f"the agenda had ended before, {state.value}"
        return AgendaFailed(**fields, message=why, retryable=False)

    def _ended(
        self, claims: LeaseClaims, end: Completion, summary: Summary | None
    ) -> LifecycleEvent:
        at = self._clock.now()
        facts = {
            **self._event_fields(claims),
            "operations": progress_of(end.operations, at),
            "spent_s": dict(end.spent_s),
        }
        match end.outcome:
            case "succeeded":
                return AgendaSucceeded(**facts)
            case "stopped":
                return AgendaStopped(**facts)
            case "not_yet":
                tokens = self._completion_tokens
                handed_over = hand_overs(summary, end, claims, tokens, at)
                return deferred_event(summary, end, facts, at, handed_over)
            case "failed":
                return AgendaFailed(
                    **facts,
                    message=end.message or "the worker says so",
                    retryable=end.retryable,
                    diagnostics=diagnostics_of(end.diagnostics, at),
                )

    async def _pulled(self, emitted: EmittedAgenda, seen_by: str | None) -> PulledAgenda:
        prior = await self._leases.prior(emitted) if emitted.attempt > 1 else None
        body = bytes(emitted.agenda)
        left = len(prior.unfinished) if prior else len(operation_types(body))
        return PulledAgenda(
            agenda_id=display_id(emitted.agenda_id, seen_by),
            insight_id=emitted.insight_id,
            customer_id=emitted.customer_id,
            attempt=emitted.attempt,
            lease_ms=emitted.lease_ms,
            accepted_at=emitted.accepted_at,
            emitted_at=emitted.emitted_at,
            agenda=submitted(body, seen_by),
            progress=progress_view(prior, seen_by=seen_by) if prior else None,
            lease_token=self._leases.sign(LeaseClaims.of(emitted, left)),
        )


def _has_connection(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()
