"""The door: agendas come in, each is judged by itself, and 202 follows Kafka's word."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import web

from pop_stream import faults
from pop_stream.api.agendas.views import links_of
from pop_stream.api.http import body
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.correlation import trace_headers
from pop_stream.api.http.errors import IdConflictError, NoneAcceptedError, TooLargeError
from pop_stream.api.http.metrics import Metrics
from pop_stream.api.http.problems import status_of
from pop_stream.api.submissions.judge import SubmissionValidator, Submission
from pop_stream.api.submissions.quota import SubmissionQuota
from pop_stream.api.submissions.repeats import AcceptedSubmissions, SubmissionDeduplicator
from pop_stream.bus.topics import Topics
from pop_stream.core.doors.seal import (
    ADMITTED_HEADER,
    DEFINITIONS_VERSION_HEADER,
    RECORD_SIGNATURE_HEADER,
    seal,
)
from pop_stream.core.errors import (
    ForbiddenError,
    CapacityError,
    Issue,
    PopStreamError,
    QuotaError,
    SubmissionError,
)
from pop_stream.core.values.identity import Principal
from pop_stream.ports.wire import Publisher, Record
from pop_stream.settings import Settings
from pop_stream.shapes.submissions import AcceptedAgenda, SubmissionResult, SubmissionResults

_ITEM_BYTES: Final = 512
"""What judging an item costs whatever its size, expressed in bytes."""

_log = structlog.get_logger()


class SubmissionEndpoints:
    """The handler of `POST /v1/agendas`."""

    def __init__(
        self,
        judge: SubmissionValidator,
        publisher: Publisher,
        repeats: SubmissionDeduplicator,
        quota: SubmissionQuota,
        *,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._validator = judge
        self._publisher = publisher
        self._deduplicator = repeats
        self._quota = quota
        self._topic = Topics(settings.topic_prefix).submissions
        self._signature_key = settings.signing_key
        self._body_reader = body.BodyReader(settings)
        self._max_agendas = settings.max_batch_agendas
        self._metrics = metrics

    async def post(self, request: web.Request) -> web.Response:
        """Take one agenda, or a list of which each agenda stands or falls alone."""
        async with self._body_reader.read(request) as content:
            if body.is_list(content):
                return await self._submit_list(content, principal_of(request))
            return await self._submit_one(content, principal_of(request))

    async def _submit_one(self, content: bytearray, principal: Principal) -> web.Response:
        body.expect_json(content)
        try:
            submission = self._validator.judge(content, principal)
        except (SubmissionError, TooLargeError, ForbiddenError) as error:
            self._metrics.refused(error.code)
            raise
        return await self.submit(submission)

    async def submit(self, submission: Submission) -> web.Response:
        """Publish a submission that was judged, unless it was before; 202 follows Kafka's word.

        Raises:
            IdConflictError: If something else was accepted under its id.
            UnavailableError: If Kafka does not acknowledge in time.
        """
        known = await self._deduplicator.look_up([submission])
        try:
            is_repeat = known.is_repeat(submission)
        except IdConflictError as error:
            self._metrics.refused(error.code)
            raise
        if not is_repeat:
            self.admit(submission)
            await self.publish([submission])
        insight_id = submission.insight_id
        _log.info("agenda.submitted", agenda_id=submission.agenda_id, insight_id=insight_id)
        links = links_of(submission.visible_id)
        accepted = AcceptedAgenda(
            id=submission.visible_id, state="accepted", insight_id=insight_id, links=links
        )
        return json_response(
            accepted, status=HTTPStatus.ACCEPTED, headers={"Location": links.agenda}
        )

    async def _submit_list(self, content: bytearray, principal: Principal) -> web.Response:
        batch = _SubmissionBatch(self._validator, principal)
        worked = 0
        for raw in await body.split(content, self._max_agendas):
            item = bytes(raw)
            batch.add(item)
            worked += len(item) + _ITEM_BYTES
            if worked > body.SLICE_BYTES:
                worked = 0
                await asyncio.sleep(0)
        batch.mark_repeats(await self._deduplicator.look_up(batch.submissions))
        batch.apply_quota(self._quota)
        for code in batch.refusals:
            self._metrics.refused(code)
        results = batch.results()
        if not results.accepted and batch.over_quota is not None:
            raise batch.over_quota  # to come back later is what helps
        if not results.accepted:
            raise NoneAcceptedError(results)
        await self.publish(batch.submissions)
        _log.info("agendas.submitted", accepted=results.accepted, refused=results.refused)
        return json_response(results, status=HTTPStatus.ACCEPTED)

    async def publish(self, submissions: Sequence[Submission]) -> None:
        """Publish submissions that were judged and admitted.

        Raises:
            UnavailableError: If Kafka does not acknowledge in time; some may be published.
        """
        extra_headers = (
            *trace_headers(),
            (DEFINITIONS_VERSION_HEADER, b"%d" % self._validator.version),
        )
        try:
            records = [self._record(one, extra_headers) for one in submissions]
            offsets = await self._publisher.publish(records)
        except BaseException:  # a caller that leaves, too
            self._quota.give_up(submissions)
            raise
        self._quota.note(submissions, offsets)
        self._deduplicator.remember(submissions)
        faults.crash_point("api.acknowledged")
        self._metrics.accepted(len(submissions))

    def admit(self, submission: Submission) -> None:
        """Count a submission that was judged; it is to be published then.

        Raises:
            QuotaError: If it is one too many of its customer.
            CapacityError: If there is no room for it.
        """
        try:
            self._quota.admit(submission)
        except (QuotaError, CapacityError) as error:
            self._metrics.refused(error.code)
            raise

    def _record(
        self, submission: Submission, extra_headers: tuple[tuple[str, bytes], ...]
    ) -> Record:
        key, value = submission.agenda_id.encode(), submission.value
        if self._signature_key is None:
            return Record(self._topic, key, value, headers=(ADMITTED_HEADER, *extra_headers))
        stamp = seal(self._signature_key, key=key, value=value)
        return Record(
            self._topic, key, value, headers=((RECORD_SIGNATURE_HEADER, stamp), *extra_headers)
        )


class _SubmissionBatch:
    """A list of agendas on its way through the judge.

    Attributes:
        submissions: Those to publish, by their place in the list.
        repeated: How many were accepted before, and are again, but published no more.
    """

    def __init__(self, judge: SubmissionValidator, principal: Principal) -> None:
        self._validator = judge
        self._principal = principal
        self._results: list[SubmissionResult] = []
        self._first_index: dict[str, int] = {}
        self._valid: dict[int, Submission] = {}
        self._repeated = 0
        self.refusals: list[str] = []
        self.over_quota: QuotaError | CapacityError | None = None

    @property
    def submissions(self) -> list[Submission]:
        return list(self._valid.values())

    def add(self, raw: bytes) -> None:
        index = len(self._results)
        try:
            submission = self._validator.judge(raw, self._principal)
            self._expect_new(submission, index)
        except SubmissionError as error:
            self._results.append(self._refused(index, error, error.issues))
        except TooLargeError as error:
            issue = Issue("agenda", f"{len(raw):,} bytes", str(error))
            self._results.append(self._refused(index, error, (issue,)))
        except ForbiddenError as error:
            issue = Issue("customer_id", "another customer", str(error))
            self._results.append(self._refused(index, error, (issue,)))
        else:
            self._valid[index] = submission
            result = SubmissionResult(
                index=index,
                status=HTTPStatus.ACCEPTED.value,
                id=submission.visible_id,
                insight_id=submission.insight_id,
            )
            self._results.append(result)

    def mark_repeats(self, known: AcceptedSubmissions) -> None:
        """Take out what was accepted before, and refuse what brings a known id along."""
        for index, submission in [*self._valid.items()]:
            try:
                is_repeat = known.is_repeat(submission)
            except IdConflictError as error:
                del self._valid[index]
                self._results[index] = self._refused(index, error, error.issues)
            else:
                if is_repeat:
                    del self._valid[index]
                    self._repeated += 1

    def apply_quota(self, quota: SubmissionQuota) -> None:
        """Refuse what goes beyond quotas and room, the later items first."""
        for index, submission in [*self._valid.items()]:
            try:
                quota.admit(submission)
            except (QuotaError, CapacityError) as error:
                del self._valid[index]
                self.over_quota = error
                self._results[index] = self._refused(index, error, error.issues)

    def results(self) -> SubmissionResults:
        return SubmissionResults(
            accepted=len(self._valid) + self._repeated,
            refused=len(self.refusals),
            results=self._results,
        )

    def _refused(
        self, index: int, error: PopStreamError, issues: tuple[Issue, ...]
    ) -> SubmissionResult:
        self.refusals.append(error.code)
        status = status_of(type(error)).value
        return SubmissionResult(index=index, status=status, issues=issues)

    def _expect_new(self, submission: Submission, index: int) -> None:
        first = self._first_index.setdefault(submission.agenda_id, index)
        if first != index:
            message = f"taken by item {first} of this list; an id names one agenda for ever"
            raise SubmissionError([Issue("id", submission.visible_id, message)])
