"""Calls that submit, read and follow agendas and links."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final

import msgspec

from pop_stream.api_models.agendas import (
    AgendaProgress,
    AgendaSummary,
    CallbackList,
    CallbackView,
    LinkView,
    OperationView,
)
from pop_stream.api_models.commands import AgendaList, ListedAgenda, SelectedAgendas, Selection
from pop_stream.api_models.queues import WhyView
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    RouteExplanation,
    SubmissionResults,
)
from pop_stream.client.content import decoded, is_named, to_json
from pop_stream.client.transport import Calls, pairs
from pop_stream.model.agenda import Agenda
from pop_stream.model.template import TemplateRun

Submission = Agenda | TemplateRun | Mapping[str, Any] | msgspec.Raw
"""An agenda or a template to run, or either as JSON has it, or its JSON text."""

_PAGE: Final = 500


class AgendaCalls(Calls):
    """Submit, read and follow agendas and links."""

    async def submit(
        self, submission: Submission, *, wait_for_space: timedelta = timedelta(0)
    ) -> AcceptedAgenda:
        """Submit an agenda, or a template to run; returns once Kafka has acknowledged it.

        With an `id` it is sent again while the API does not answer, and is accepted once;
        without, it is not: it could run twice.

        Args:
            submission: One of either.
            wait_for_space: How long the API may hold it back while its customer, or its
                insight, has as much as it may; up to 30 s.

        Raises:
            ApiRefusedError: If it is not sound or fits no insight; `issues` say why.
            ApiConflictError: If something else was accepted under its id.
            ApiRateLimitedError: If its customer submits more than it may.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            AcceptedAgenda,
            "agendas",
            query=_waiting(wait_for_space),
            body=to_json(submission),
            is_repeatable=is_named(submission),
            extra_timeout=wait_for_space,
        )

    async def submit_many(self, submissions: Sequence[Submission]) -> SubmissionResults:
        """Submit up to 10,000, of which each stands or falls alone.

        If all have ids they are sent again while the API does not answer.

        Returns:
            What became of each, in their order; at least one was accepted.

        Raises:
            ApiRefusedError: If none was accepted; `problem.results` say why.
            ApiRateLimitedError: If a customer submits more than it may.
            ApiError: If there is no answer; some may have been accepted.
        """
        return await self._transport.post(
            SubmissionResults,
            "agendas",
            body=_list(submissions),
            is_repeatable=all(map(is_named, submissions)),
        )

    async def agenda(self, agenda_id: str) -> AgendaSummary:
        """The agenda's summary, and the agenda as accepted.

        Raises:
            NotFoundError: If there is none, or not yet: summaries follow their events.
            ApiError: If there is no answer.
        """
        return await self._transport.read(AgendaSummary, "agendas", agenda_id)

    async def progress(self, agenda_id: str) -> AgendaProgress:
        """How far the agenda is, operation by operation.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        return await self._transport.read(AgendaProgress, "agendas", agenda_id, "progress")

    async def operation(self, agenda_id: str, name: str) -> OperationView:
        """How far one operation is, with its result.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        return await self._transport.read(
            OperationView, "agendas", agenda_id, "operations", name
        )

    async def callbacks(self, agenda_id: str) -> Sequence[CallbackView]:
        """What became of the reports of the agenda's ends, newest first; at most 100.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        found = await self._transport.read(CallbackList, "agendas", agenda_id, "callbacks")
        return found.callbacks

    async def why(self, agenda_id: str) -> WhyView:
        """Why the agenda is where it is, and about how long it will wait.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        return await self._transport.read(WhyView, "agendas", agenda_id, "why")

    async def explain(self, agenda_id: str) -> RouteExplanation:
        """Where the agenda would go by the definitions in force now, and why.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        return await self._transport.read(RouteExplanation, "agendas", agenda_id, "explain")

    async def explain_placement(self, submission: Submission) -> RouteExplanation:
        """The same for what is not submitted.

        Raises:
            ApiRefusedError: If it is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            RouteExplanation,
            "placement",
            "explain",
            body=to_json(submission),
            is_repeatable=True,
        )

    async def page(
        self,
        where: Selection | None = None,
        *,
        newest_first: bool = True,
        limit: int = _PAGE,
        cursor: str | None = None,
    ) -> AgendaList:
        """One page of the agendas that the caller sees and that fit.

        Args:
            where: Which; all of them if None.
            newest_first: By acceptance.
            limit: 1 to 500.
            cursor: `next` of the page before.

        Raises:
            ApiError: If there is no answer.
        """
        query = _page_query(where, newest_first=newest_first, limit=limit, cursor=cursor)
        return await self._transport.read(AgendaList, "agendas", query=query)

    async def fields(
        self,
        names: Sequence[str],
        where: Selection | None = None,
        *,
        newest_first: bool = True,
        limit: int = _PAGE,
        cursor: str | None = None,
    ) -> SelectedAgendas:
        """One page as `page` gives it, each agenda with only these of its fields.

        Args:
            names: Of a `ListedAgenda`, one at least.
            where: Which; all of them if None.
            newest_first: By acceptance.
            limit: 1 to 500.
            cursor: `next` of the page before.

        Raises:
            ApiRefusedError: If a name is none of its fields.
            ApiError: If there is no answer.
        """
        query = _page_query(where, newest_first=newest_first, limit=limit, cursor=cursor)
        query.append(("fields", ",".join(names)))
        return await self._transport.read(SelectedAgendas, "agendas", query=query)

    async def agendas(
        self, where: Selection | None = None, *, newest_first: bool = True
    ) -> AsyncIterator[ListedAgenda]:
        """All agendas that the caller sees and that fit, page after page.

        None is yielded twice or left out when others come in meanwhile.

        Raises:
            ApiError: If there is no answer.
        """
        cursor: str | None = None
        while True:
            page = await self.page(where, newest_first=newest_first, cursor=cursor)
            for one in page.agendas:
                yield one
            cursor = page.next
            if cursor is None:
                return

    async def link(self, link_id: str) -> LinkView:
        """What all agendas with this link id add up to.

        Raises:
            NotFoundError: If there is none, or not yet.
            ApiError: If there is no answer.
        """
        return await self._transport.read(LinkView, "links", link_id, "summary")

    async def follow(self, agenda_id: str) -> AsyncIterator[AgendaProgress]:
        """The agenda's progress, now and after every change, until it has ended.

        A stream that breaks is resumed; what happened meanwhile is yielded as one change.
        An agenda that is not known yet is waited for, three seconds.

        Raises:
            NotFoundError: If there is none.
            ApiError: If the stream cannot be taken up again in time.
        """
        async with aclosing(self._transport.follow("agendas", agenda_id, "events")) as events:
            async for event in events:
                progress = decoded(event.data, AgendaProgress)
                yield progress
                if progress.state.is_terminal:
                    return

    async def follow_link(self, link_id: str) -> AsyncIterator[LinkView]:
        """What all agendas of a link add up to, now and after every change; without an end.

        Raises:
            NotFoundError: If there is none.
            ApiError: If the stream cannot be taken up again in time.
        """
        async with aclosing(self._transport.follow("links", link_id, "events")) as events:
            async for event in events:
                yield decoded(event.data, LinkView)


def _waiting(wait_for_space: timedelta) -> Sequence[tuple[str, str]]:
    seconds = wait_for_space.total_seconds()
    return [("wait_for_space_s", f"{seconds:g}")] if seconds else []


def _list(submissions: Sequence[Submission]) -> bytes:
    return b"[" + b",".join(map(to_json, submissions)) + b"]"


def _page_query(
    where: Selection | None, *, newest_first: bool, limit: int, cursor: str | None
) -> list[tuple[str, str]]:
    order = "newest" if newest_first else "oldest"
    query = [*pairs(_query(where or Selection())), ("order", order), ("limit", str(limit))]
    return [*query, ("cursor", cursor)] if cursor else query


def _query(where: Selection) -> Mapping[str, Sequence[str] | str]:
    return where.model_dump(mode="json", exclude_defaults=True)
