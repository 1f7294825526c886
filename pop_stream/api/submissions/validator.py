"""Submissions over HTTP, checked by the definitions in force."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final

from aiohttp import web

from pop_stream.api.http.answers import JSON
from pop_stream.api.http.errors import MediaTypeError, TooLargeError
from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import AgendaTooLargeError
from pop_stream.model.identity import ANYONE, Principal
from pop_stream.model.ids import InsightId
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.ingress.admission import Admission, Submission
from pop_stream.policy.ingress.cloud_events import (
    BATCH,
    STRUCTURED,
    from_http_headers,
    from_structured,
    is_binary_over_http,
)
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy, Verdict
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.policy.ingress.routing import InsightRouter
from pop_stream.policy.splitting.periods import BUILT_IN_PERIODS, PeriodResolvers
from pop_stream.ports.definitions import DefinitionSource


class SubmissionValidator:
    """Checks one agenda at a time as `Admission` does, and answers as HTTP does.

    Args:
        definitions: Whose insights an agenda must fit.
        new_id: Makes an id for an agenda that has none.
        largest: Most bytes of one agenda, as sent and as published.
        defined_only: Whether agendas of customers that are not defined are refused.
        policies: Asked about every agenda.
        rankers: The operator's own, by name.
        now: The present instant, for ranks; without it none is computed.
        resolvers: Of periods, for templates that divide their runs.

    Attributes:
        resolvers: The same.
    """

    def __init__(  # noqa: PLR0913  # by what it decides, named once
        self,
        definitions: DefinitionSource,
        new_id: Callable[[], str],
        *,
        largest: int,
        defined_only: bool,
        resolvers: PeriodResolvers = BUILT_IN_PERIODS,
        policies: Sequence[AdmissionPolicy] = BUILT_IN,
        rankers: Mapping[str, RankFunction] = MappingProxyType({}),
        now: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        self._now = now
        self._definitions = definitions
        self._new_id = new_id
        self.resolvers = resolvers
        self._admission = Admission(
            Definitions(),
            max_agenda_bytes=largest,
            defined_customers_only=defined_only,
            resolvers=resolvers,
            policies=policies,
            rankers=rankers,
        )

    def validate(
        self,
        raw: bytes | bytearray,
        principal: Principal,
        *,
        suggested_id: str | None = None,
    ) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Args:
            raw: What was sent.
            principal: Who sent it.
            suggested_id: Its id, unless the text names one.

        Raises:
            ForbiddenError: If the caller does not speak for its customer, known or not.
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        with _too_large():
            return self._current.admit(
                raw,
                principal,
                new_id=self._new_id,
                suggested_id=suggested_id,
                at=self._now(),
            )

    def read(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the JSON text stands for; of a template that the caller sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return self._current.parse(raw, principal)

    def accept(
        self,
        agenda: Agenda,
        principal: Principal = ANYONE,
        template: AgendaTemplate | None = None,
    ) -> Submission:
        """The submission that an agenda makes, under an id of its own.

        Args:
            agenda: Sound, and the caller's to submit.
            principal: Who chose its id, if it has one.
            template: What it was made from, if that may be newer than what is in force.

        Raises:
            SubmissionError: If it fits no insight.
            TooLargeError: If it is too large when written out.
        """
        with _too_large():
            return self._current.admit_agenda(
                agenda, principal, new_id=self._new_id, template=template, at=self._now()
            )

    def check_customer(self, principal: Principal, customer_id: str) -> None:
        """Check that what the caller submits may be the customer's; see `Admission`.

        Raises:
            ForbiddenError: If it may not.
        """
        self._current.check_customer(principal, customer_id)

    def verdict(
        self, agenda: Agenda, insight_id: InsightId, template: AgendaTemplate | None = None
    ) -> Verdict:
        """What the policies say of a sound agenda that goes to the insight."""
        return self._current.verdict(agenda, insight_id, template)

    @property
    def version(self) -> int:
        """Of the definitions in force, by which validation goes now."""
        return self._definitions.current.version

    @property
    def router(self) -> InsightRouter:
        """The router of the definitions in force."""
        return self._current.router

    @property
    def _current(self) -> Admission:
        self._admission = self._admission.following(self._definitions.current)
        return self._admission


@contextmanager
def _too_large() -> Iterator[None]:
    """Answers 413 for what Kafka's dead letter calls an unsound submission."""
    try:
        yield
    except AgendaTooLargeError as error:
        msg = f"an agenda may hold {error.limit:,} bytes at most, not {error.size:,}"
        raise TooLargeError(msg, limit=error.limit) from None


MEDIA_TYPES: Final = (JSON, STRUCTURED, BATCH)
"""What a submission may be said to be: itself, or CloudEvents that hold it."""

Unwrap = Callable[[bytes | bytearray], bytes | bytearray]
"""What an item of a request submits.

Raises:
    SubmissionError: If it is no sound CloudEvent, and is said to be one.
"""


def unwrapper(request: web.Request, principal: Principal) -> Unwrap:
    """What items of a request submit, by how the request is said to be made.

    Raises:
        MediaTypeError: If it is said to be made in two ways.
    """
    customer_id, kind = principal.customer_id, request.content_type
    is_binary = is_binary_over_http(request.headers)
    if is_binary and kind in {STRUCTURED, BATCH}:
        msg = f"send {kind} without headers that begin with ce-, or its data as {JSON}"
        raise MediaTypeError(msg)
    if is_binary:
        return partial(from_http_headers, dict(request.headers), customer_id=customer_id)
    if kind in {STRUCTURED, BATCH}:
        return partial(from_structured, customer_id=customer_id)
    return lambda item: item
