"""The door: agendas come in, each is judged by itself, and 202 follows Kafka's word."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from aiohttp import web

from pop_stream.api import body, problems
from pop_stream.api.metrics import Metrics
from pop_stream.api.models import (
    AcceptedAgenda,
    Links,
    SubmissionResult,
    SubmissionResults,
    answer,
)
from pop_stream.core.agenda import encode_agenda, parse_agenda
from pop_stream.core.errors import Issue, SubmissionError
from pop_stream.core.placement import Placement
from pop_stream.ports import DefinitionSource, Publisher, Record
from pop_stream.settings import Settings

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Submission:
    """An agenda that passed, ready to publish.

    Attributes:
        value: The agenda as JSON, with its id.
    """

    agenda_id: str
    insight_id: str
    value: bytes


class Judge:
    """Decides on one agenda at a time, by the definitions in force.

    Args:
        definitions: Whose insights an agenda must fit.
        new_id: Makes an id for an agenda that has none.
        largest: Most bytes of one agenda, as sent and as published.
    """

    def __init__(
        self, definitions: DefinitionSource, new_id: Callable[[], str], *, largest: int
    ) -> None:
        self._definitions = definitions
        self._new_id = new_id
        self._largest = largest
        self._insights = definitions.current.insights
        self._placement = Placement(self._insights.values())

    def judge(self, raw: bytes) -> Submission:
        """The submission that an agenda's JSON text makes.

        Raises:
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        self._check_size(raw)
        agenda = parse_agenda(raw)
        insight_id = self._current_placement().place(agenda)
        if agenda.id is None:
            agenda = agenda.model_copy(update={"id": self._new_id()})
        value = encode_agenda(agenda)
        self._check_size(value)
        return Submission(str(agenda.id), insight_id, value)

    def _current_placement(self) -> Placement:
        insights = self._definitions.current.insights
        if insights is not self._insights:
            self._insights = insights
            self._placement = Placement(insights.values())
        return self._placement

    def _check_size(self, value: bytes) -> None:
        if len(value) > self._largest:
            msg = f"an agenda may hold {self._largest:,} bytes at most, this has {len(value):,}"
            raise problems.TooLargeError(msg, limit=self._largest)


class Submissions:
    """The handlers of `POST /v1/agendas`."""

    def __init__(
        self,
        judge: Judge,
        publisher: Publisher,
        *,
        topic: str,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._judge = judge
        self._publisher = publisher
        self._topic = topic
        self._bodies = body.Bodies(settings)
        self._most = settings.max_batch_agendas
        self._metrics = metrics

    async def post(self, request: web.Request) -> web.Response:
        """Take one agenda, or a list of them."""
        async with self._bodies.read(request) as content:
            if body.is_list(content):
                return await self._take_list(content)
            return await self._take_one(content)

    async def _take_one(self, content: bytes) -> web.Response:
        body.expect_object(content)
        try:
            submission = self._judge.judge(content)
        except (SubmissionError, problems.TooLargeError) as error:
            self._metrics.refused(error.code)
            raise
        await self._publish([submission])
        agenda_id = submission.agenda_id
        _log.info(
            "agenda.submitted", agenda_id=agenda_id, insight_id=submission.insight_id
        )
        links = links_of(agenda_id)
        accepted = AcceptedAgenda(
            id=agenda_id, state="accepted", insight_id=submission.insight_id, links=links
        )
        return answer(accepted, status=HTTPStatus.ACCEPTED, headers={"Location": links.agenda})

    async def _take_list(self, content: bytes) -> web.Response:
        batch = _Batch(self._judge)
        worked = 0
        for raw in await body.split(content, self._most):
            batch.add(bytes(raw))
            worked += len(raw)
            if worked > body.SLICE_BYTES:
                worked = 0
                await asyncio.sleep(0)
        for code in batch.refusals:
            self._metrics.refused(code)
        results = batch.results()
        if not results.accepted:
            raise problems.NoneAcceptedError(results)
        await self._publish(batch.submissions)
        _log.info("agendas.submitted", accepted=results.accepted, refused=results.refused)
        return answer(results, status=HTTPStatus.ACCEPTED)

    async def _publish(self, submissions: Sequence[Submission]) -> None:
        await self._publisher.publish(
            [Record(self._topic, one.agenda_id.encode(), one.value) for one in submissions]
        )
        self._metrics.accepted(len(submissions))


class _Batch:
    """A list of agendas on its way through the judge."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._results: list[SubmissionResult] = []
        self._places: dict[str, int] = {}
        self.submissions: list[Submission] = []
        self.refusals: list[str] = []

    def add(self, raw: bytes) -> None:
        index = len(self._results)
        try:
            submission = self._judge.judge(raw)
            self._expect_new(submission.agenda_id, index)
        except SubmissionError as error:
            self._refuse(index, error, error.issues)
        except problems.TooLargeError as error:
            self._refuse(index, error, (Issue("agenda", f"{len(raw):,} bytes", str(error)),))
        else:
            self.submissions.append(submission)
            self._results.append(
                SubmissionResult(
                    index=index,
                    status=HTTPStatus.ACCEPTED.value,
                    id=submission.agenda_id,
                    insight_id=submission.insight_id,
                )
            )

    def results(self) -> SubmissionResults:
        return SubmissionResults(
            accepted=len(self.submissions), refused=len(self.refusals), results=self._results
        )

    def _expect_new(self, agenda_id: str, index: int) -> None:
        first = self._places.setdefault(agenda_id, index)
        if first != index:
            message = f"taken by item {first} of this list; an id names one agenda for ever"
            raise SubmissionError([Issue("id", agenda_id, message)])
