"""The door: agendas come in, each is judged by itself, and 202 follows Kafka's word."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import web

from pop_stream import faults
from pop_stream.api import body
from pop_stream.api.judge import Judge, Submission
from pop_stream.api.metrics import Metrics
from pop_stream.api.models import (
    AcceptedAgenda,
    SubmissionResult,
    SubmissionResults,
    answer,
)
from pop_stream.api.problems import NoneAcceptedError, TooLargeError, status_of
from pop_stream.api.views import links_of
from pop_stream.core.errors import Issue, PopStreamError, SubmissionError
from pop_stream.ports import Publisher, Record
from pop_stream.settings import Settings

_ITEM_BYTES: Final = 512
"""What judging an item costs whatever its size, expressed in bytes."""

_log = structlog.get_logger()


class Submissions:
    """The handler of `POST /v1/agendas`."""

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
        """Take one agenda, or a list of which each agenda stands or falls alone."""
        async with self._bodies.read(request) as content:
            if body.is_list(content):
                return await self._take_list(content)
            return await self._take_one(content)

    async def _take_one(self, content: bytearray) -> web.Response:
        body.expect_json(content)
        try:
            submission = self._judge.judge(content)
        except (SubmissionError, TooLargeError) as error:
            self._metrics.refused(error.code)
            raise
        return await self.submit(submission)

    async def submit(self, submission: Submission) -> web.Response:
        """Publish a submission that was judged; 202 follows Kafka's word.

        Raises:
            UnavailableError: If Kafka does not acknowledge in time.
        """
        await self.publish([submission])
        agenda_id, insight_id = submission.agenda_id, submission.insight_id
        _log.info("agenda.submitted", agenda_id=agenda_id, insight_id=insight_id)
        links = links_of(agenda_id)
        accepted = AcceptedAgenda(
            id=agenda_id, state="accepted", insight_id=insight_id, links=links
        )
        return answer(accepted, status=HTTPStatus.ACCEPTED, headers={"Location": links.agenda})

    async def _take_list(self, content: bytearray) -> web.Response:
        batch = _Batch(self._judge)
        worked = 0
        for raw in await body.split(content, self._most):
            item = bytes(raw)
            batch.add(item)
            worked += len(item) + _ITEM_BYTES
            if worked > body.SLICE_BYTES:
                worked = 0
                await asyncio.sleep(0)
        for code in batch.refusals:
            self._metrics.refused(code)
        results = batch.results()
        if not results.accepted:
            raise NoneAcceptedError(results)
        await self.publish(batch.submissions)
        _log.info("agendas.submitted", accepted=results.accepted, refused=results.refused)
        return answer(results, status=HTTPStatus.ACCEPTED)

    async def publish(self, submissions: Sequence[Submission]) -> None:
        """Publish submissions that were judged.

        Raises:
            UnavailableError: If Kafka does not acknowledge in time; some may be published.
        """
        await self._publisher.publish(
            [Record(self._topic, one.agenda_id.encode(), one.value) for one in submissions]
        )
        faults.reach("api.acknowledged")
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
            self._refuse(error, error.issues)
        except TooLargeError as error:
            self._refuse(error, (Issue("agenda", f"{len(raw):,} bytes", str(error)),))
        else:
            self.submissions.append(submission)
            result = SubmissionResult(
                index=index,
                status=HTTPStatus.ACCEPTED.value,
                id=submission.agenda_id,
                insight_id=submission.insight_id,
            )
            self._results.append(result)

    def results(self) -> SubmissionResults:
        return SubmissionResults(
            accepted=len(self.submissions), refused=len(self.refusals), results=self._results
        )

    def _refuse(self, error: PopStreamError, issues: tuple[Issue, ...]) -> None:
        status = status_of(type(error)).value
        self.refusals.append(error.code)
        self._results.append(
            SubmissionResult(index=len(self._results), status=status, issues=issues)
        )

    def _expect_new(self, agenda_id: str, index: int) -> None:
        first = self._places.setdefault(agenda_id, index)
        if first != index:
            message = f"taken by item {first} of this list; an id names one agenda for ever"
            raise SubmissionError([Issue("id", agenda_id, message)])
