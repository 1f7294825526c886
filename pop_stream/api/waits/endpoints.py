"""Signals are given and listed; operations that wait for a person are approved or rejected."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
import structlog
from aiohttp import web
from msgspec import UNSET, Raw
from pydantic import BaseModel, ConfigDict, Field

from pop_stream.api.agendas.reads import found
from pop_stream.api.http import body
from pop_stream.api.http.access import author_of, object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import id_pattern, read_query
from pop_stream.api_models.base import NULL
from pop_stream.api_models.waits import (
    Decision,
    DecisionResult,
    SignalList,
    SignalRequest,
    SignalView,
)
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import Id
from pop_stream.model.errors import Issue, NotFoundError, StateError
from pop_stream.model.events.lifecycle import AgendaResolved
from pop_stream.model.identity import Principal, Role, require_access
from pop_stream.model.revisions import AuditRecord
from pop_stream.model.signal import MAX_SIGNAL_BYTES, Signal
from pop_stream.model.tenancy import display_id
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.states import BEFORE_EMISSION
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.audit import AuditLog
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.signals import SignalStore
from pop_stream.ports.summaries import SummaryReader
from pop_stream.settings import Settings

MAX_LISTED: Final = 1_000

Verdict = Literal["approve", "reject"]

_DONE: Final[dict[Verdict, Literal["approved", "rejected"]]] = {
    "approve": "approved",
    "reject": "rejected",
}

_log = structlog.get_logger()


class SignalListing(BaseModel):
    """What a list of signals may be narrowed to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    customer_id: Annotated[Id | None, Field()] = None


class SignalEndpoints:
    """The handlers of signals."""

    def __init__(
        self, signals: SignalStore, clock: Clock, body_reader: body.BodyReader
    ) -> None:
        self._signals = signals
        self._clock = clock
        self._body_reader = body_reader

    async def post(self, request: web.Request) -> web.Response:
        """Give a signal."""
        name, principal = request.match_info["name"], principal_of(request)
        if not id_pattern("name").fits(name):
            raise InvalidError([Issue("name", name[:100], "letters, digits, . _ : / -")])
        wanted = await self._body_reader.read_model(request, SignalRequest)
        payload = b"" if wanted.payload is None else msgspec.json.encode(wanted.payload)
        if len(payload) > MAX_SIGNAL_BYTES:
            remedy = f"at most {MAX_SIGNAL_BYTES:,} bytes; store it elsewhere, and name where"
            raise InvalidError([Issue("payload", f"{len(payload):,} bytes", remedy)])
        now = self._clock.now()
        signal = Signal(
            customer_id=_customer_of(wanted.customer_id, principal),
            name=name,
            payload=payload,
            given_at=now,
            given_by=principal.name,
            expires_at=now + timedelta(seconds=wanted.keep_s),
        )
        await with_timeout(self._signals.give(signal))
        _log.info("signal.given", signal=name, customer_id=signal.customer_id)
        return json_response(_view(signal), status=HTTPStatus.OK)

    async def get_list(self, request: web.Request) -> web.Response:
        """The signals that are kept, of the customers that the caller sees."""
        wanted, principal = read_query(request, SignalListing), principal_of(request)
        customer_id = wanted.customer_id if principal.is_operator else principal.customer_id
        if not principal.speaks_for(wanted.customer_id or customer_id):
            return json_response(SignalList(signals=[]), status=HTTPStatus.OK)
        kept = await with_timeout(
            self._signals.kept_of(customer_id, self._clock.now(), MAX_LISTED)
        )
        return json_response(SignalList(signals=[*map(_view, kept)]), status=HTTPStatus.OK)


class DecisionEndpoints:
    """The handlers of approving and rejecting."""

    def __init__(
        self,
        *,
        summaries: SummaryReader,
        publisher: Publisher,
        clock: Clock,
        body_reader: body.BodyReader,
        settings: Settings,
        audit_log: AuditLog,
    ) -> None:
        self._summaries = summaries
        self._publisher = publisher
        self._clock = clock
        self._body_reader = body_reader
        self._audit_log = audit_log
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._signer = RecordSigner(settings.signing_keys)

    def post(self, verdict: Verdict) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of one verdict."""

        async def decide(request: web.Request) -> web.Response:
            decision = await self._body_reader.read_model(request, Decision)
            agenda_id, operation = object_of(request), request.match_info["operation"]
            visible_id = display_id(agenda_id, principal_of(request).customer_id)
            summary = found(
                await with_timeout(self._summaries.agenda(agenda_id)), "agenda", visible_id
            )
            _expect_waiting(summary, operation, verdict)
            await self._record(summary, operation, verdict, decision, request)
            event = self._resolved(summary, operation, verdict, decision, request)
            records = await lifecycle_records(
                self._publisher, self._topic, [event], signer=self._signer
            )
            await self._publisher.publish(records)
            _log.info("operation.decided", agenda_id=agenda_id, decision=_DONE[verdict])
            result = DecisionResult(
                agenda_id=visible_id,
                operation=operation,
                decision=_DONE[verdict],
                state=summary.state,
            )
            return json_response(result, status=HTTPStatus.ACCEPTED)

        return decide

    async def _record(
        self,
        summary: Summary,
        operation: str,
        verdict: Verdict,
        decision: Decision,
        request: web.Request,
    ) -> None:
        entry = AuditRecord(
            author=author_of(request, decision.reason),
            action=_DONE[verdict],
            kind="operation",
            object_id=summary.agenda_id,
            after={"operation": operation, "reason": decision.reason},
        )
        await with_timeout(self._audit_log.record(entry))

    def _resolved(
        self,
        summary: Summary,
        operation: str,
        verdict: Verdict,
        decision: Decision,
        request: web.Request,
    ) -> AgendaResolved:
        by, now = principal_of(request).name, self._clock.now()
        said = f": {decision.reason}" if decision.reason else ""
        is_approved = verdict == "approve"
        result = {"approved_by": by, "reason": decision.reason, "at": now}
        return AgendaResolved(
            agenda_id=summary.agenda_id,
            at=now,
            insight_id=summary.insight_id,
            attempt=summary.attempt,
            operation=operation,
            outcome="succeeded" if is_approved else "failed",
            result=Raw(msgspec.json.encode(result)) if is_approved else UNSET,
            by=by,
            reason=f"{_DONE[verdict]} by {by}{said}",
        )


def _expect_waiting(summary: Summary, operation: str, verdict: Verdict) -> None:
    """Check that the operation waits for a person, and its agenda for nothing else.

    Raises:
        NotFoundError: If the agenda has no such operation.
        StateError: If it does not wait for a person, or an attempt is being made.
    """
    if operation not in summary.all_names:
        kind = "operation"
        raise NotFoundError(kind, operation)
    one = summary.operations.get(operation)
    wait = one.wait if one is not None and one.state == "waiting" else None
    if wait is None or wait.kind != "approval":
        what, state = f"operation {operation}", one.state if one is not None else "waiting"
        raise StateError(what, state, verdict, "waiting for a person")
    if summary.state not in BEFORE_EMISSION:
        wanted = "waiting, as it will be again in a moment"
        raise StateError(summary.agenda_id, summary.state.value, verdict, wanted)


def _customer_of(named: str | None, principal: Principal) -> str:
    """Whose signal it is.

    Raises:
        InvalidError: If an operator does not say.
        NotFoundError: If it is another customer's.
    """
    customer_id = named or principal.customer_id
    if customer_id is None:
        raise InvalidError([Issue("customer_id", "null", "say whose waits the signal ends")])
    if not principal.speaks_for(customer_id):
        require_access(principal, Role.SUBMIT, None, named=("customer", customer_id))
    return customer_id


def _view(signal: Signal) -> SignalView:
    return SignalView(
        customer_id=signal.customer_id,
        name=signal.name,
        payload=Raw(signal.payload) if signal.payload else NULL,
        given_at=signal.given_at,
        given_by=signal.given_by,
        expires_at=signal.expires_at,
    )
