"""Schedules beside their definitions: when they fire next, how far they are, commands."""

from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import islice

from aiohttp import web

from pop_stream.api.definitions.resource import DefinitionEndpoints
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import read_query
from pop_stream.api_models.schedules import (
    Backfill,
    CommandedSchedule,
    NextInstant,
    NextInstants,
    NextQuery,
    OccurrenceList,
    OccurrenceRunView,
    OccurrenceSelection,
    OccurrenceView,
    ScheduleProgress,
)
from pop_stream.model.errors import Issue
from pop_stream.model.events.codec import encode
from pop_stream.model.events.occasions import ScheduleAction, ScheduleCommanded, ScheduleState
from pop_stream.model.identity import Principal
from pop_stream.model.schedule import Schedule, kind_of, nominal_of
from pop_stream.model.tenancy import display_id
from pop_stream.model.trigger import zone_of
from pop_stream.policy.schedules.plan import MAX_BACKFILL, backfilled, status
from pop_stream.ports.clock import Clock
from pop_stream.ports.occurrences import OccurrenceFilter, OccurrenceStore, StoredOccurrence
from pop_stream.ports.publisher import Publisher, Record

StateOf = Callable[[str], ScheduleState | None]
"""The last state of a schedule that is known here; None if there is none yet."""


class ScheduleEndpoints:
    """The handlers of a schedule's routes beside those of every definition.

    Args:
        schedules: As they are defined now.
        state_of: Where each has come to, a moment ago.
        publisher: Of commands.
        occurrences: What was decided about each, and what became of it.
        topic: `pop.occasions`, with its prefix.
        clock: For what is next.
        body_reader: Reads requests' bodies.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        schedules: DefinitionEndpoints,
        state_of: StateOf,
        publisher: Publisher,
        *,
        occurrences: OccurrenceStore,
        topic: str,
        clock: Clock,
        body_reader: BodyReader,
    ) -> None:
        self._schedules = schedules
        self._state_of = state_of
        self._publisher = publisher
        self._occurrences = occurrences
        self._topic = topic
        self._clock = clock
        self._body_reader = body_reader

    async def get_next(self, request: web.Request) -> web.Response:
        """When it fires next."""
        query = read_query(request, NextQuery)
        schedule = await self._find(request)
        zone = zone_of(schedule.timezone)
        following = islice(schedule.instants(self._clock.now()), query.n)
        items = tuple(
            NextInstant(
                nominal=one,
                local=one.astimezone(zone).isoformat(),
                due_at=schedule.due_at(one),
            )
            for one in following
        )
        return json_response(NextInstants(items=items), status=HTTPStatus.OK)

    async def get_progress(self, request: web.Request) -> web.Response:
        """How far it has come; of others' work no agenda is named."""
        schedule = await self._find(request)
        state = self._state_of(schedule.id) or ScheduleState(
            schedule_id=schedule.id, position=0
        )
        principal, previous = principal_of(request), state.previous
        running = state.open if _is_own(schedule, principal) else ()
        shown = ScheduleProgress(
            status=status(schedule, state, self._clock.now()),
            last=None if previous is None else nominal_of(previous),
            fired=state.fired,
            skipped=state.skipped,
            missed=state.missed,
            failures=state.failures,
            running=tuple(display_id(one.agenda_id, principal.customer_id) for one in running),
            waiting=tuple(map(nominal_of, state.waiting)),
        )
        return json_response(shown, status=HTTPStatus.OK)

    async def get_occurrences(self, request: web.Request) -> web.Response:
        """A page of what was due, latest first; of others' work nothing is listed."""
        chosen = read_query(request, OccurrenceSelection)
        schedule, principal = await self._find(request), principal_of(request)
        if not _is_own(schedule, principal):
            return json_response(OccurrenceList(items=(), next=None), status=HTTPStatus.OK)
        wanted = OccurrenceFilter(
            schedule.id, chosen.state, chosen.nominal_from, chosen.nominal_before
        )
        page = await with_timeout(self._occurrences.page(wanted, limit=chosen.limit))
        items = [_view(one, schedule, principal.customer_id) for one in page.occurrences]
        listed = OccurrenceList(items=tuple(items), next=page.next)
        return json_response(listed, status=HTTPStatus.OK)

    async def post_trigger(self, request: web.Request) -> web.Response:
        """Submit an occurrence for now, whatever runs."""
        return await self._command(request, await self._find(request), "trigger", [self._now()])

    async def post_resume(self, request: web.Request) -> web.Response:
        """End the pause that failures have led to."""
        return await self._command(request, await self._find(request), "resume", [])

    async def post_backfill(self, request: web.Request) -> web.Response:
        """Submit the occurrences of a range.

        Raises:
            InvalidError: If there are none, or too many.
        """
        wanted = await self._body_reader.read_model(request, Backfill)
        schedule = await self._find(request)
        found = backfilled(schedule, wanted.first, wanted.last)
        if not found or len(found) > MAX_BACKFILL:
            there_are = f"more than {MAX_BACKFILL}" if found else "no"
            message = f"has {there_are} occurrences; give a range with 1 to {MAX_BACKFILL}"
            span = f"{wanted.first.isoformat()}/{wanted.last.isoformat()}"
            raise InvalidError([Issue("first", span, message)])
        return await self._command(
            request, schedule, "backfill", found, (wanted.first, wanted.last)
        )

    def _now(self) -> datetime:
        return self._clock.now()

    async def _find(self, request: web.Request) -> Schedule:
        stored = await self._schedules.find(request)
        if not isinstance(stored.definition, Schedule):
            raise TypeError(stored.kind)
        return stored.definition

    async def _command(
        self,
        request: web.Request,
        schedule: Schedule,
        action: ScheduleAction,
        occurrences: Sequence[datetime],
        span: tuple[datetime, datetime] | None = None,
    ) -> web.Response:
        """Publish it; answers 202 once Kafka has it."""
        principal = principal_of(request)
        first, last = span or (None, None)
        command = ScheduleCommanded(
            schedule_id=schedule.id,
            action=action,
            at=self._now(),
            first=first,
            last=last,
            by=principal.name,
        )
        key = schedule.id.encode()
        await self._publisher.publish([Record(self._topic, key, encode(command))])
        shown = CommandedSchedule(
            schedule_id=display_id(schedule.id, principal.customer_id),
            occurrences=len(occurrences),
        )
        return json_response(shown, status=HTTPStatus.ACCEPTED)


def _is_own(schedule: Schedule, principal: Principal) -> bool:
    """Whether the agendas of a schedule, which the caller may see, are the caller's own."""
    whose = schedule.owner or schedule.submission.get("customer_id")
    return principal.is_operator or whose == principal.customer_id


def _view(one: StoredOccurrence, schedule: Schedule, seen_by: str | None) -> OccurrenceView:
    return OccurrenceView(
        nominal=one.nominal,
        local=one.nominal.astimezone(zone_of(schedule.timezone)).isoformat(),
        state=one.state,
        reason=one.reason,
        runs=tuple(
            OccurrenceRunView(
                agenda_id=display_id(run.agenda_id, seen_by),
                kind=kind_of(run.agenda_id),
                state=run.state,
                attempt=run.attempt,
                submitted_at=run.submitted_at,
                accepted_at=run.accepted_at,
                started_at=run.started_at,
                ended_at=run.ended_at,
                message=run.message,
            )
            for run in one.runs
        ),
    )
