"""Commands for agendas: cancel, hold, release, reprioritise, rerun and delete, one or many.

The summary is asked whether the agenda's state allows the command, so that most refusals are
answered at once; the scheduler, which alone decides, checks again when the command reaches it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Literal

import structlog
from aiohttp import web
from msgspec.structs import replace

from pop_stream.api.agendas.reads import found
from pop_stream.api.agendas.selection import filter_of, is_set, position_of
from pop_stream.api.agendas.views import links_of
from pop_stream.api.http import body
from pop_stream.api.http.access import author_of, object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import InvalidError
from pop_stream.api_models.commands import (
    BulkAction,
    BulkCommand,
    BulkResult,
    CommandRequest,
    CommandResult,
    Reprioritisation,
    Rerun,
    SkipReason,
)
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import Agenda, parse_agenda
from pop_stream.model.errors import Issue, NotFoundError, StateError, SubmissionError
from pop_stream.model.events.lifecycle import Action, AgendaCommanded, LifecycleEvent
from pop_stream.model.revisions import AuditRecord
from pop_stream.model.tenancy import display_id
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.rerun import has_effect, must_reach_scheduler, restart_event
from pop_stream.policy.lifecycle.states import OUTCOMES, TERMINAL, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter, AgendaStore
from pop_stream.ports.audit import AuditLog
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.summaries import SummaryReader
from pop_stream.settings import Settings

BATCH_AGENDAS: Final = 1_000
"""Agendas of a bulk command that are read, judged and commanded in one go."""

_log = structlog.get_logger()


class CommandEndpoints:
    """The handlers of commands for agendas."""

    def __init__(  # noqa: PLR0913  # every port that commands need, named once
        self,
        *,
        summaries: SummaryReader,
        agendas: AgendaStore,
        publisher: Publisher,
        clock: Clock,
        body_reader: body.BodyReader,
        settings: Settings,
        audit_log: AuditLog,
    ) -> None:
        self._audit_log = audit_log
        self._summaries = summaries
        self._agendas = agendas
        self._publisher = publisher
        self._clock = clock
        self._body_reader = body_reader
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._signer = RecordSigner(settings.signing_keys)

    # ---- one ----

    def post(self, action: Action) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of one command for one agenda."""
        shape = Reprioritisation if action == "reprioritise" else CommandRequest

        async def command(request: web.Request) -> web.Response:
            command_request = await self._body_reader.read_model(request, shape)
            _expect_change(action, command_request)
            summary = await self._summary(request)
            if must_reach_scheduler(action, summary):
                await self._publish([self._command(action, summary, command_request, request)])
            done = not has_effect(action, summary)
            return _commanded(summary, action, request, done=done)

        return command

    async def post_rerun(self, request: web.Request) -> web.Response:
        """Run an agenda that has ended again."""
        command_request = await self._body_reader.read_model(request, Rerun)
        summary = await self._summary(request)
        await self._publish([self._restart(summary, command_request, request)])
        return _commanded(summary, "rerun", request, done=False)

    async def delete(self, request: web.Request) -> web.Response:
        """Remove an agenda that has ended."""
        summary = await self._summary(request)
        if not await with_timeout(self._agendas.delete([summary.agenda_id])):
            wanted = ", ".join(sorted(state.value for state in TERMINAL))
            raise StateError(summary.agenda_id, summary.state.value, "delete", wanted)
        _log.info("agenda.deleted", agenda_id=summary.agenda_id)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    # ---- many ----

    async def post_bulk(self, request: web.Request) -> web.Response:
        """One command for all agendas of a selection."""
        command_request = await self._body_reader.read_model(request, BulkCommand)
        if not is_set(command_request.filter):
            remedy = "names no agendas; set at least one of its fields"
            raise InvalidError([Issue("filter", "{}", remedy)])
        _expect_change(command_request.action, command_request)
        wanted = filter_of(command_request.filter, principal_of(request))
        states: Counter[State] = Counter()
        not_possible: Counter[SkipReason] = Counter()
        commanded = 0
        if not command_request.dry_run:
            await self._audit("commanded", command_request, request)
        async for agendas in self._pages(wanted):
            due = [one for one in agendas if _is_applicable(command_request, one)]
            states.update(one.state for one in agendas)
            states.subtract(one.state for one in due)
            if due:
                commanded += await self._do(command_request, due, request, not_possible)
        result = BulkResult(
            action=command_request.action,
            dry_run=command_request.dry_run,
            matched=commanded + states.total() + not_possible.total(),
            commanded=commanded,
            skipped={state: number for state, number in states.items() if number},
            not_possible=dict(not_possible),
        )
        if not command_request.dry_run:
            counts = {"matched": result.matched, "commanded": commanded}
            await self._audit("finished", command_request, request, counts)
        _log.info("agendas.commanded", action=command_request.action, commanded=commanded)
        status = HTTPStatus.OK if command_request.dry_run else HTTPStatus.ACCEPTED
        return json_response(result, status=status)

    async def _audit(
        self,
        step: Literal["commanded", "finished"],
        command_request: BulkCommand,
        request: web.Request,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """Record the command before anything is done, and what came of it.

        If the second is missing, the command did not come to its end.
        """
        author = author_of(request, command_request.reason)
        wish = command_request.model_dump(mode="json", exclude_defaults=True)
        entry = AuditRecord(
            author=author,
            action=step,
            kind="agendas",
            object_id=command_request.action,
            after={**wish, **(counts or {})},
        )
        await with_timeout(self._audit_log.record(entry))

    async def _do(
        self,
        command_request: BulkCommand,
        agendas: Sequence[Summary],
        request: web.Request,
        not_possible: Counter[SkipReason],
    ) -> int:
        """Publish the command, or only count if it is a dry run; how many agendas it is for."""
        if command_request.action == "delete":
            if not command_request.dry_run:
                await self._agendas.delete([one.agenda_id for one in agendas])
            return len(agendas)
        if command_request.action == "rerun":
            events = await self._restarts(command_request, agendas, request, not_possible)
        else:
            action = command_request.action
            events = [self._command(action, one, command_request, request) for one in agendas]
        if events and not command_request.dry_run:
            await self._publish(events)
        return len(events)

    async def _restarts(
        self,
        command_request: BulkCommand,
        agendas: Sequence[Summary],
        request: web.Request,
        not_possible: Counter[SkipReason],
    ) -> Sequence[LifecycleEvent]:
        """The events that run the agendas again; why others cannot run is counted."""
        again = Rerun(
            operations=command_request.operations,
            hold=command_request.hold,
            reason=command_request.reason,
        )
        events: list[LifecycleEvent] = []
        for one in await self._agendas.load_details(agendas):
            try:
                events.append(self._restart(one, again, request))
            except NotFoundError:
                not_possible["no_body"] += 1
            except SubmissionError:
                not_possible["invalid"] += 1
        return events

    async def _pages(self, wanted: AgendaFilter) -> AsyncIterator[Sequence[Summary]]:
        after: AgendaCursor | None = None
        while True:
            agendas = await self._agendas.find(
                wanted, limit=BATCH_AGENDAS, after=after, newest_first=False
            )
            if not agendas:
                return
            yield agendas
            after = position_of(agendas[-1])

    # ---- inside ----

    async def _summary(self, request: web.Request) -> Summary:
        agenda_id = object_of(request)
        summary = await with_timeout(self._summaries.agenda(agenda_id))
        return found(
            summary, "agenda", display_id(agenda_id, principal_of(request).customer_id)
        )

    def _command(
        self,
        action: Action,
        summary: Summary,
        command_request: CommandRequest,
        request: web.Request,
    ) -> AgendaCommanded:
        command = AgendaCommanded(
            agenda_id=summary.agenda_id,
            at=self._clock.now(),
            insight_id=summary.insight_id,
            action=action,
            by=principal_of(request).name,
            reason=command_request.reason,
            attempt=summary.attempt,
        )
        if action == "reprioritise" and isinstance(command_request, Reprioritisation):
            return replace(
                command, priority=command_request.priority, rank=command_request.rank
            )
        return command

    def _restart(
        self, summary: Summary, command_request: Rerun, request: web.Request
    ) -> LifecycleEvent:
        return restart_event(
            summary,
            _agenda(summary),
            again=command_request.operations,
            hold=command_request.hold,
            by=principal_of(request).name,
            reason=command_request.reason,
            now=self._clock.now(),
        )

    async def _publish(self, lifecycle: Iterable[LifecycleEvent]) -> None:
        records = await lifecycle_records(
            self._publisher, self._topic, lifecycle, signer=self._signer
        )
        await self._publisher.publish(records)


def _agenda(summary: Summary) -> Agenda:
    """The agenda as accepted.

    Raises:
        NotFoundError: If it was never accepted: nothing is known to run again.
    """
    if not summary.body:
        kind = "agenda"
        raise NotFoundError(kind, summary.agenda_id)
    return parse_agenda(summary.body, is_accepted=True)


def _is_applicable(command_request: BulkCommand, summary: Summary) -> bool:
    if command_request.action == "delete":
        return summary.state in TERMINAL
    if command_request.action == "rerun":
        return summary.state in OUTCOMES
    try:
        return must_reach_scheduler(command_request.action, summary)
    except StateError:
        return False


def _expect_change(action: BulkAction, command_request: CommandRequest) -> None:
    if action != "reprioritise" or not isinstance(command_request, Reprioritisation):
        return
    if command_request.priority is None and command_request.rank is None:
        raise InvalidError([Issue("priority", "null", "set priority, rank, or both")])


def _commanded(
    summary: Summary, action: str, request: web.Request, *, done: bool
) -> web.Response:
    visible_id = display_id(summary.agenda_id, principal_of(request).customer_id)
    links = links_of(visible_id)
    result = CommandResult(
        id=visible_id, action=action, state=summary.state, done=done, links=links
    )
    if done:
        return json_response(result, status=HTTPStatus.OK)
    return json_response(result, status=HTTPStatus.ACCEPTED, headers={"Location": links.agenda})
