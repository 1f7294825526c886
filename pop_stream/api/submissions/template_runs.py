"""Runs of templates: submitted, or only shown; and why an agenda goes where it goes."""

from http import HTTPStatus
from itertools import islice
from typing import Final

from aiohttp import web
from pydantic import ValidationError

from pop_stream.api.agendas.reads import found
from pop_stream.api.agendas.views import submitted
from pop_stream.api.definitions.resource import DefinitionEndpoints
from pop_stream.api.http.access import object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.parameters import read_query
from pop_stream.api.submissions.submissions import SubmissionEndpoints, SubmissionQuery
from pop_stream.api.submissions.validator import SubmissionValidator
from pop_stream.api_models.submissions import (
    Preview,
    RouteCandidate,
    RouteExplanation,
    SplitPreview,
)
from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda
from pop_stream.model.errors import Issue, NotFoundError, SubmissionError
from pop_stream.model.template import (
    TEMPLATE_CALL,
    AgendaTemplate,
    TemplateCall,
    with_own_customer,
)
from pop_stream.model.tenancy import display_id
from pop_stream.model.validation import issues_of, without_nul
from pop_stream.policy.ingress.policies import Defer, Deny
from pop_stream.policy.splitting.parent import as_split, expand_run, first_child
from pop_stream.ports.summaries import SummaryReader

SHOWN_CHILDREN: Final = 3
"""First parts of a payload that a preview shows."""

_NOTHING: Final = b"{}"


class TemplateRunEndpoints:
    """The handlers of `…/run`, of both previews and of the two explanations of routes.

    Args:
        templates: As they are defined now: a run uses what was written before it.
        validator: Decides where an agenda goes.
        submissions: Sends it there.
        summaries: Knows the agendas that were submitted.
        body_reader: Reads requests' bodies.
    """

    def __init__(
        self,
        templates: DefinitionEndpoints,
        validator: SubmissionValidator,
        submissions: SubmissionEndpoints,
        summaries: SummaryReader,
        body_reader: BodyReader,
    ) -> None:
        self._templates = templates
        self._validator = validator
        self._submissions = submissions
        self._summaries = summaries
        self._body_reader = body_reader

    async def run(self, request: web.Request) -> web.Response:
        """Submit the agenda that the template makes of the body."""
        query = read_query(request, SubmissionQuery)
        agenda, template = await self._expanded(request)
        accepted = self._validator.accept(agenda, principal_of(request), template)
        return await self._submissions.submit(accepted, query)

    async def preview(self, request: web.Request) -> web.Response:
        """Show that agenda, and where it would go, and submit nothing."""
        agenda, template = await self._expanded(request)
        insight_id, issues = self._routed(agenda, template)
        made = submitted(encode_agenda(agenda), principal_of(request).customer_id)
        shown = Preview(agenda=made, insight_id=insight_id, issues=issues)
        return json_response(shown, status=HTTPStatus.OK)

    async def preview_split(self, request: web.Request) -> web.Response:
        """Count the children of a run and show the first, and submit nothing."""
        template, call, version = await self._called(request)
        resolvers, caller = self._validator.resolvers, principal_of(request)
        job, first = first_child(as_split(template), call, version=version, resolvers=resolvers)
        self._validator.check_customer(caller, first.customer_id)
        found = job.cut(resolvers)
        insight_id, issues = self._routed(first, template)
        parent = expand_run(template, call, version=version, resolvers=resolvers)
        parent_insight_id, of_parent = self._routed(parent, template)
        shown = SplitPreview(
            children=found.count,
            first=tuple(islice(found.payloads(), SHOWN_CHILDREN)),
            last=next(found.payloads(found.count - 1)),
            agenda=submitted(encode_agenda(first), caller.customer_id),
            insight_id=insight_id,
            parent_insight_id=parent_insight_id,
            issues=(*of_parent, *(one for one in issues if one not in of_parent)),
        )
        return json_response(shown, status=HTTPStatus.OK)

    async def explain_agenda(self, request: web.Request) -> web.Response:
        """How the insights in force now fare with an agenda that was submitted."""
        agenda_id = object_of(request)
        known = await with_timeout(self._summaries.agenda(agenda_id))
        visible_id = display_id(agenda_id, principal_of(request).customer_id)
        summary = found(known, "agenda", visible_id)
        if not summary.body:
            kind = "accepted agenda"
            raise NotFoundError(kind, visible_id)
        agenda = parse_agenda(summary.body).model_copy(update={"id": visible_id})
        return self._explained(agenda, summary.insight_id or None)

    async def explain(self, request: web.Request) -> web.Response:
        """How the insights in force now fare with an agenda or a run, not submitted."""
        async with self._body_reader.read(request) as raw:
            agenda = self._validator.read(raw, principal_of(request))
        self._validator.check_customer(principal_of(request), agenda.customer_id)
        return self._explained(agenda, None)

    def _explained(self, agenda: Agenda, went_to: str | None) -> web.Response:
        insight_id, issues = self._routed(agenda)
        shown = RouteExplanation(
            agenda_id=agenda.id,
            customer_id=agenda.customer_id,
            insight_id=insight_id,
            went_to=went_to,
            issues=issues,
            considered=tuple(
                RouteCandidate(
                    insight_id=one.insight_id,
                    outcome=one.outcome,
                    why=one.why,
                    matches=tuple(f"{match.mapper}: {match.value}" for match in one.matches),
                    precedence=one.precedence,
                    specificity=one.specificity,
                    is_wanted=one.is_wanted,
                )
                for one in self._validator.router.explain(agenda)
            ),
        )
        return json_response(shown, status=HTTPStatus.OK)

    def _routed(
        self, agenda: Agenda, template: AgendaTemplate | None = None
    ) -> tuple[str | None, tuple[Issue, ...]]:
        try:
            insight_id = self._validator.router.route(agenda)
        except SubmissionError as error:
            return None, error.issues
        match self._validator.verdict(agenda, insight_id, template):
            case Deny(issues):
                return insight_id, tuple(issues)
            case Defer(reason):
                return insight_id, (Issue("hold", "true", f"it would be held: {reason}"),)
            case _:
                return insight_id, ()

    async def _expanded(self, request: web.Request) -> tuple[Agenda, AgendaTemplate]:
        template, call, version = await self._called(request)
        agenda = expand_run(
            template, call, version=version, resolvers=self._validator.resolvers
        )
        self._validator.check_customer(principal_of(request), agenda.customer_id)
        return agenda, template

    async def _called(self, request: web.Request) -> tuple[AgendaTemplate, TemplateCall, int]:
        """The template of the path as it is now, what runs it, and its version."""
        async with self._body_reader.read(request) as raw:
            call = _parse(bytes(raw) or _NOTHING)
        stored = await self._templates.find(request)
        if not isinstance(stored.definition, AgendaTemplate):
            raise TypeError(stored.kind)
        call = with_own_customer(call, principal_of(request).customer_id)
        return stored.definition, call, stored.version


def _parse(raw: bytes) -> TemplateCall:
    try:
        return TEMPLATE_CALL.model_validate_json(without_nul(raw, document="run"), strict=True)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="run")) from None
