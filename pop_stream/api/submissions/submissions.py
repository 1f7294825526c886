"""Submissions: one agenda or a list, validated, counted, published; 202 follows Kafka's word.

Agendas without an id get one that sorts by time. What each customer may submit is bounded by
its quota; the rest is answered with 429 and when to come back.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

import structlog
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from pop_stream.api.agendas.views import links_of
from pop_stream.api.http import body
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.correlation import current_span, trace_headers
from pop_stream.api.http.errors import (
    IdConflictError,
    InvalidError,
    NoneAcceptedError,
    TooLargeError,
)
from pop_stream.api.http.parameters import read_query
from pop_stream.api.http.problems import status_of
from pop_stream.api.http.route import QueryParameter
from pop_stream.api.http.server import Metrics
from pop_stream.api.submissions.duplicates import DuplicateFinder, KnownDuplicates
from pop_stream.api.submissions.repeats import AcceptedSubmissions, SubmissionDeduplicator
from pop_stream.api.submissions.validator import (
    MEDIA_TYPES,
    SubmissionValidator,
    Unwrap,
    unwrapper,
)
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    SubmissionResult,
    SubmissionResults,
)
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import (
    CapacityError,
    DuplicateError,
    ForbiddenError,
    Issue,
    PopStreamError,
    QuotaError,
    SubmissionError,
)
from pop_stream.model.identity import Principal
from pop_stream.model.series import series_partition
from pop_stream.policy.ingress.admission import Submission
from pop_stream.policy.ingress.cloud_events import BATCH
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.signature import (
    ADMITTED_HEADER,
    DEFINITIONS_VERSION_HEADER,
    RecordSigner,
)
from pop_stream.ports.publisher import Publisher, Record, RecordMetadata
from pop_stream.settings import Settings

_VERSION_7: Final = 7 << 76
_RFC_VARIANT: Final = 2 << 62


def time_ordered_id(now: datetime) -> str:
    """A UUID of version 7: unique, and in an index beside those of the same time.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = int(now.timestamp() * 1000)
    random = secrets.randbits(74)
    high, low = random >> 62, random & ((1 << 62) - 1)
    return str(UUID(int=milliseconds << 80 | _VERSION_7 | high << 64 | _RFC_VARIANT | low))


class SubmissionQuota:
    """Holds submissions to quotas of customers and to capacity limits of insights.

    Args:
        ledger: Of this process.
        now_s: Its clock.
    """

    def __init__(
        self, ledger: QuotaLedger, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._quota_ledger = ledger
        self._now_s = now_s

    def admit(self, submission: Submission) -> None:
        """Count one agenda; `confirm` or `release` must follow.

        Raises:
            QuotaError: If it would be one too many of its customer.
            CapacityError: If its insight's scheduler has as much as it may.
        """
        self._quota_ledger.admit(
            submission.customer_id,
            submission.insight_id,
            now_s=self._now_s(),
            is_urgent=submission.is_urgent,
        )

    def confirm(
        self, submissions: Sequence[Submission], offsets: Sequence[RecordMetadata]
    ) -> None:
        """Confirm submissions that are written, each with its position."""
        for one, written in zip(submissions, offsets, strict=True):
            self._quota_ledger.record_position(
                one.customer_id, one.insight_id, (written.offset, 0), lane=written.partition
            )

    def release(self, submissions: Sequence[Submission]) -> None:
        """Release submissions that are not written, as far as is known."""
        for one in submissions:
            self._quota_ledger.release(one.customer_id, one.insight_id)


_ITEM_BYTES: Final = 512
"""What judging an item costs whatever its size, expressed in bytes."""

_log = structlog.get_logger()


MAX_WAIT_FOR_SPACE_S: Final = 30.0
"""Longest that a submission waits for space; many proxies end a request after a minute."""

MAX_WAITING: Final = 200
MAX_WAITING_OF_CUSTOMER: Final = 20
"""Submissions that wait for space at once, in a process and of one customer."""

_LOOK_AGAIN_S: Final = 0.1


class SubmissionQuery(BaseModel):
    """Parameters of a submission."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wait_for_space_s: Annotated[float, Field(ge=0, le=MAX_WAIT_FOR_SPACE_S)] = Field(
        default=0.0,
        description="How long to wait for room instead of being refused with 429 at once. "
        "One agenda only.",
    )

    def expect_one(self) -> None:
        """Called for a list, of which each item is answered by itself and at once.

        Raises:
            InvalidError: If it was to wait.
        """
        if self.wait_for_space_s:
            message = "a list does not wait; submit the agenda alone, or leave this out"
            value = f"{self.wait_for_space_s:g}"
            raise InvalidError([Issue("wait_for_space_s", value, message)])


WAIT_FOR_SPACE: Final = QueryParameter(
    "wait_for_space_s",
    f"{SubmissionQuery.model_fields['wait_for_space_s'].description}",
    {"type": "number", "minimum": 0, "maximum": MAX_WAIT_FOR_SPACE_S, "default": 0},
)


class SubmissionEndpoints:
    """The handler of `POST /v1/agendas`."""

    def __init__(  # noqa: PLR0913  # what a submission passes, in order
        self,
        validator: SubmissionValidator,
        publisher: Publisher,
        repeats: SubmissionDeduplicator,
        duplicates: DuplicateFinder,
        quota: SubmissionQuota,
        body_reader: body.BodyReader,
        *,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._validator = validator
        self._publisher = publisher
        self._deduplicator = repeats
        self._duplicates = duplicates
        self._quota = quota
        self._topic = Topics(settings.topic_prefix).submissions
        self._signer = RecordSigner(settings.signing_keys)
        self._body_reader = body_reader
        self._max_agendas = settings.max_batch_agendas
        self._metrics = metrics
        self._waiting = Counter[str]()
        self._now_s = time.monotonic

    async def post(self, request: web.Request) -> web.Response:
        """Submit an agenda, or a list of which each one is accepted or refused by itself."""
        query, principal = read_query(request, SubmissionQuery), principal_of(request)
        unwrap = unwrapper(request, principal)
        async with self._body_reader.read(request, accept=MEDIA_TYPES) as content:
            if request.content_type != BATCH and not body.is_list(content):
                return await self._submit_one(content, principal, query, unwrap)
            query.expect_one()
            return await self._submit_list(content, principal, unwrap)

    async def _submit_one(
        self,
        content: bytearray,
        principal: Principal,
        query: "SubmissionQuery",
        unwrap: Unwrap,
    ) -> web.Response:
        body.expect_json(content)
        try:
            submission = self._validator.validate(unwrap(content), principal)
        except (SubmissionError, TooLargeError, ForbiddenError) as error:
            self._metrics.refused(error.code)
            raise
        return await self.submit(submission, query)

    async def submit(self, submission: Submission, query: "SubmissionQuery") -> web.Response:
        """Publish a validated submission unless it was published before; answers 202.

        Raises:
            IdConflictError: If something else was accepted under its id.
            DuplicateError: If it is a duplicate, and wants to be refused then.
            QuotaError: If there is no room for it, nor within the time it may wait.
            UnavailableError: If Kafka does not acknowledge in time.
        """
        known = await self._deduplicator.look_up([submission])
        try:
            is_repeat = known.is_repeat(submission)
        except IdConflictError as error:
            self._metrics.refused(error.code)
            raise
        if not is_repeat:
            duplicates = await self._duplicates.find([submission])
            try:
                duplicates.expect_none(submission)
            except DuplicateError as error:
                self._metrics.refused(error.code)
                raise
            await self._admit_within(submission, query.wait_for_space_s)
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

    async def known(self, submissions: Sequence[Submission]) -> AcceptedSubmissions:
        """What was accepted before under the ids of these."""
        return await self._deduplicator.look_up(submissions)

    async def _submit_list(
        self, content: bytearray, principal: Principal, unwrap: Unwrap
    ) -> web.Response:
        batch = _SubmissionBatch(self._validator, principal, unwrap)
        worked = 0
        for raw in await body.split(content, self._max_agendas):
            item = bytes(raw)
            batch.add(item)
            worked += len(item) + _ITEM_BYTES
            if worked > body.SLICE_BYTES:
                worked = 0
                await asyncio.sleep(0)
        batch.mark_repeats(await self._deduplicator.look_up(batch.submissions))
        batch.mark_duplicates(await self._duplicates.find(batch.submissions))
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
        """Publish submissions that were validated and admitted.

        Raises:
            UnavailableError: If Kafka does not acknowledge in time; some may be published.
        """
        extra_headers = (
            *trace_headers(),
            (DEFINITIONS_VERSION_HEADER, b"%d" % self._validator.version),
        )
        try:
            partitions = await self._publisher.partitions(self._topic)
            records = [self._record(one, extra_headers, partitions) for one in submissions]
            offsets = await self._publisher.publish(records)
        except BaseException:  # a caller that leaves, too
            self._quota.release(submissions)
            raise
        if (span := current_span()) is not None:
            span.add(self._attributes_of(submissions))
        self._quota.confirm(submissions, offsets)
        self._deduplicator.remember(submissions)
        self._metrics.accepted(len(submissions))

    def _attributes_of(self, submissions: Sequence[Submission]) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.destination.name": self._topic,
            "messaging.batch.message_count": len(submissions),
        }
        if len(submissions) == 1:
            [one] = submissions
            attributes |= {
                "pop_stream.agenda.id": one.agenda_id,
                "pop_stream.customer.id": one.customer_id,
                "pop_stream.insight.id": one.insight_id,
            }
        return attributes

    async def _admit_within(self, submission: Submission, wait_s: float) -> None:
        """As `admit`, and tried again while it is one too many, for so long at most.

        Whoever waits keeps a body in memory, so few may: of one customer and in all. The rest
        is refused at once.
        """
        customer_id = submission.customer_id
        ends_at = self._now_s() + wait_s
        is_crowded = (
            self._waiting.total() >= MAX_WAITING
            or self._waiting[customer_id] >= MAX_WAITING_OF_CUSTOMER
        )
        if not wait_s or is_crowded:
            self.admit(submission)
            return
        self._waiting[customer_id] += 1
        try:
            while (left_s := ends_at - self._now_s()) > 0:
                with suppress(QuotaError):
                    self._quota.admit(submission)
                    return
                await asyncio.sleep(min(_LOOK_AGAIN_S, left_s))
        finally:
            self._waiting[customer_id] -= 1
            self._waiting += Counter()  # drops whoever waits no more
        self.admit(submission)

    def admit(self, submission: Submission) -> None:
        """Count a validated submission against its quota; the caller publishes it then.

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
        self,
        submission: Submission,
        extra_headers: tuple[tuple[str, bytes], ...],
        partitions: int,
    ) -> Record:
        key, value = submission.agenda_id.encode(), submission.value
        signed = self._signer.headers(self._topic, key=key, value=value) or (ADMITTED_HEADER,)
        series = submission.agenda.series
        partition = (
            series_partition(submission.customer_id, series.id, partitions) if series else None
        )
        return Record(self._topic, key, value, partition, headers=(*signed, *extra_headers))


class _SubmissionBatch:
    """A list of agendas that is being validated.

    Attributes:
        submissions: Those to publish, by their place in the list.
        repeated: How many were accepted before, and are again, but published no more.
    """

    def __init__(
        self, validator: SubmissionValidator, principal: Principal, unwrap: Unwrap
    ) -> None:
        self._validator = validator
        self._principal = principal
        self._unwrap = unwrap
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
            submission = self._validator.validate(self._unwrap(raw), self._principal)
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
        """Mark what was accepted before, and refuse other content under a known id."""
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

    def mark_duplicates(self, known: KnownDuplicates) -> None:
        """Refuse what is a duplicate of what is there, or of an earlier item."""
        for index, submission in [*self._valid.items()]:
            try:
                known.expect_none(submission)
            except DuplicateError as error:
                del self._valid[index]
                self._results[index] = self._refused(index, error, error.issues)
            else:
                known.add(submission)

    def apply_quota(self, quota: SubmissionQuota) -> None:
        """Refuse what exceeds quotas and capacity limits; later items are refused first."""
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
