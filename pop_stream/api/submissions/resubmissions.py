"""Refused agendas, submitted again once what they lacked is defined."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from pop_stream.api.agendas.selection import filter_of, position_of
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.errors import TooLargeError
from pop_stream.api.submissions.submissions import SubmissionEndpoints
from pop_stream.api.submissions.validator import SubmissionValidator
from pop_stream.api_models.commands import Selection
from pop_stream.api_models.submissions import Resubmitted, StillRefused
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.identity import Principal
from pop_stream.model.tenancy import customer_of_id, display_id
from pop_stream.policy.ingress.admission import Submission
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter, AgendaStore

BATCH_AGENDAS: Final = 200
"""Agendas that are read, judged and submitted in one go."""

_SHOWN: Final = 20

_log = structlog.get_logger()


class Resubmission(BaseModel):
    """Which refused agendas to try again; all that the caller may, if no field is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    filter: Selection = Field(
        default=Selection(), description="Of the refused ones, those that fit."
    )
    dry_run: bool = Field(default=False, description="Only count.")


class ResubmissionEndpoints:
    """The handler of `POST /v1/resubmissions`."""

    def __init__(
        self,
        agendas: AgendaStore,
        validator: SubmissionValidator,
        submissions: SubmissionEndpoints,
        body_reader: BodyReader,
    ) -> None:
        self._agendas = agendas
        self._validator = validator
        self._submissions = submissions
        self._body_reader = body_reader

    async def post(self, request: web.Request) -> web.Response:
        """Validate refused agendas again, and submit those that pass now, under their ids."""
        request_body = await self._body_reader.read_model(request, Resubmission)
        principal = principal_of(request)
        selected = filter_of(request_body.filter, principal)
        refused: list[StillRefused] = []
        resubmitted = still_refused = without_body = 0
        async for summaries in self._pages(selected):
            passed: list[Submission] = []
            for summary in summaries:
                if not summary.body:
                    without_body += 1
                    continue
                try:
                    submission = self._validated(summary, principal)
                    if not request_body.dry_run:
                        self._submissions.admit(submission)
                    passed.append(submission)
                except (SubmissionError, TooLargeError) as error:
                    still_refused += 1
                    if len(refused) < _SHOWN:
                        visible_id = display_id(summary.agenda_id, principal.customer_id)
                        refused.append(StillRefused(id=visible_id, reason=str(error)))
            resubmitted += len(passed)
            if passed and not request_body.dry_run:
                await self._submissions.publish(passed)
        result = Resubmitted(
            dry_run=request_body.dry_run,
            resubmitted=resubmitted,
            still_refused=still_refused,
            without_body=without_body,
            reasons=refused,
        )
        _log.info("agendas.resubmitted", resubmitted=resubmitted, refused=still_refused)
        return json_response(
            result, status=HTTPStatus.OK if request_body.dry_run else HTTPStatus.ACCEPTED
        )

    def _validated(self, summary: Summary, caller: Principal) -> Submission:
        """What was refused, as its sender may submit it now, whoever tries it again.

        Raises:
            SubmissionError: If it is not sound, fits no insight, or is another customer's
                than it was when it was refused: a template may have been defined meanwhile.
            TooLargeError: If it is too large when written out.
        """
        chosen_by = customer_of_id(summary.agenda_id) or caller.customer_id
        sender = replace(caller, customer_id=chosen_by)
        agenda = self._validator.read(summary.body, sender)
        customer_id = summary.customer_id or chosen_by
        if customer_id is not None and agenda.customer_id != customer_id:
            message = "is not the customer whose agenda was refused; submit it as that customer"
            raise SubmissionError([Issue("customer_id", agenda.customer_id, message)])
        # Its series may be past it, and somebody wants it to run all the same.
        again = agenda.model_copy(update={"id": summary.agenda_id, "series": None})
        return self._validator.accept(again)

    async def _pages(self, selected: AgendaFilter) -> AsyncIterator[Sequence[Summary]]:
        """Refused agendas with their bodies; what is resubmitted meanwhile is not met again."""
        wanted = replace(selected, states=(State.REFUSED,))
        if selected.states and State.REFUSED not in selected.states:
            return
        after: AgendaCursor | None = None
        while True:
            found = await self._agendas.find(
                wanted, limit=BATCH_AGENDAS, after=after, newest_first=False
            )
            if not found:
                return
            yield await self._agendas.load_details(found)
            after = position_of(found[-1])
