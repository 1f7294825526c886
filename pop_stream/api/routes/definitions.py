"""The routes of definitions: customers, pools, insights and templates have the same ones.

Also those that run templates, explain where agendas are routed and submit refused ones again.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter

from pop_stream.api.agendas.queries import QueueEndpoints
from pop_stream.api.definitions.insight_health import HealthReport, InsightHealthEndpoints
from pop_stream.api.definitions.models import DEFINED, NAMES, PAGES, PATCHES
from pop_stream.api.definitions.resource import REASON, DefinitionEndpoints
from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.answers import JSON
from pop_stream.api.http.body import MERGE_PATCH
from pop_stream.api.http.conditions import IF_MATCH, IF_NONE_MATCH, NOT_MODIFIED
from pop_stream.api.http.errors import BODY_ERRORS, IdConflictError, InvalidError
from pop_stream.api.http.route import (
    CHANGE_ERRORS,
    READ_ERRORS,
    QueryParameter,
    Route,
    RouteResponse,
)
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.resubmissions import Resubmission, ResubmissionEndpoints
from pop_stream.api.submissions.submissions import WAIT_FOR_SPACE
from pop_stream.api.submissions.template_runs import TemplateRunEndpoints
from pop_stream.api_models.queues import (
    ForecastRequest,
    ForecastView,
    HealthReportView,
    QueueView,
)
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    Preview,
    Resubmitted,
    RouteExplanation,
    SplitPreview,
)
from pop_stream.model.agenda import Agenda
from pop_stream.model.definition_lists import DEFAULT_LIMIT, MAX_LISTED, fields_of
from pop_stream.model.definitions import CUSTOMERS_KINDS, KINDS, Kind
from pop_stream.model.errors import (
    CapacityError,
    DefinitionError,
    DuplicateError,
    ExistsError,
    ForbiddenError,
    InUseError,
    NotFoundError,
    PreconditionError,
    QueryError,
    QuotaError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.model.identity import Role
from pop_stream.model.template import TEMPLATE_CALL, TEMPLATE_RUN
from pop_stream.model.validation import MAX_QUERY_VALUES

_PLURALS: Final[Mapping[Kind, str]] = {
    "customer": "Customers",
    "pool": "Pools",
    "insight": "Insights",
    "template": "Templates",
    "schedule": "Schedules",
    "rule": "Rules",
}

_ERRORS: Final = (
    *BODY_ERRORS,
    *CHANGE_ERRORS,
    InvalidError,
    SubmissionError,
    DefinitionError,
    PreconditionError,
    UnavailableError,
)

_LIMITS: Final = (
    QueryParameter(
        "limit",
        "Most on the page.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LISTED,
            "default": DEFAULT_LIMIT,
        },
    ),
    QueryParameter(
        "cursor", "`next` of the page before, with the same sort.", {"type": "string"}
    ),
)


def definition_routes(
    owners: Owners,
    resources: Mapping[Kind, DefinitionEndpoints],
    queue_endpoints: QueueEndpoints,
    insight_health: InsightHealthEndpoints,
) -> tuple[Route, ...]:
    """Definitions of all kinds, and the queues and the health of insights."""
    return (
        *(route for one in resources.values() for route in _definition_routes(owners, one)),
        *_queue_routes(owners, queue_endpoints),
        _health_route(owners, insight_health),
    )


def _definition_routes(owners: Owners, endpoints: DefinitionEndpoints) -> tuple[Route, ...]:
    return (
        *_collection_routes(endpoints),
        *_read_routes(owners, endpoints),
        *_write_routes(endpoints),
        _delete_route(endpoints),
    )


def _collection_routes(endpoints: DefinitionEndpoints) -> tuple[Route, ...]:
    kind = endpoints.kind
    return (
        Route(
            "GET",
            endpoints.path,
            endpoints.get_all,
            f"list{_PLURALS[kind]}",
            "Those that the caller sees; filtered by any field, a.b for one inside another, "
            "any of the values of a filter that is given several times",
            (RouteResponse("A page.", (PAGES[kind],)),),
            (QueryError, UnavailableError),
            query=(*_list_parameters(kind), *_LIMITS, *_filters(kind)),
            access=read_access(),
        ),
        Route(
            "POST",
            endpoints.path,
            endpoints.post,
            f"create{NAMES[kind]}",
            f"Define a {kind} that is not there yet",
            (_created(kind),),
            (*_ERRORS, ExistsError),
            query=(REASON,),
            body_models=(KINDS[kind],),
            access=_write_access(endpoints),
        ),
    )


def _read_routes(owners: Owners, endpoints: DefinitionEndpoints) -> tuple[Route, ...]:
    kind, path = endpoints.kind, _path(endpoints)
    one = _shown(kind)
    known = RouteResponse(
        "Unchanged.", status=HTTPStatus.NOT_MODIFIED, media_type=None, has_etag=True
    )
    return (
        Route(
            "GET",
            path,
            endpoints.get_one,
            f"get{NAMES[kind]}",
            f"One {kind}",
            (one, known),
            READ_ERRORS,
            headers=(NOT_MODIFIED,),
            access=read_access(owners.defined(kind)),
        ),
        Route(
            "GET",
            f"{path}/versions/{{version}}",
            endpoints.get_version,
            f"get{NAMES[kind]}Version",
            f"What a {kind} was in one version, be it deleted since",
            (one,),
            READ_ERRORS,
            access=read_access(),
        ),
    )


def _write_routes(endpoints: DefinitionEndpoints) -> tuple[Route, ...]:
    kind, path = endpoints.kind, _path(endpoints)
    one, write = _shown(kind), _write_access(endpoints)
    return (
        Route(
            "PUT",
            path,
            endpoints.put,
            f"put{NAMES[kind]}",
            f"Define a {kind}, in the place of what there may be",
            (one, _created(kind)),
            _ERRORS,
            body_models=(KINDS[kind],),
            query=(REASON,),
            headers=(IF_MATCH, IF_NONE_MATCH),
            access=write,
        ),
        Route(
            "PATCH",
            path,
            endpoints.patch,
            f"patch{NAMES[kind]}",
            f"Change fields of a {kind}, as a JSON merge patch says",
            (one,),
            (*_ERRORS, NotFoundError),
            body_models=(PATCHES[kind],),
            media_types=(JSON, MERGE_PATCH),
            query=(REASON,),
            headers=(IF_MATCH,),
            access=write,
        ),
    )


def _delete_route(endpoints: DefinitionEndpoints) -> Route:
    kind = endpoints.kind
    gone = RouteResponse("Deleted.", status=HTTPStatus.NO_CONTENT, media_type=None)
    return Route(
        "DELETE",
        _path(endpoints),
        endpoints.delete,
        f"delete{NAMES[kind]}",
        f"Delete a {kind} that nothing needs",
        (gone,),
        (*READ_ERRORS, *CHANGE_ERRORS, InUseError, PreconditionError, InvalidError),
        query=(REASON,),
        headers=(IF_MATCH,),
        access=_write_access(endpoints),
    )


def _path(endpoints: DefinitionEndpoints) -> str:
    return f"{endpoints.path}/{{{endpoints.parameter}}}"


def _shown(kind: Kind) -> RouteResponse:
    return RouteResponse(f"The {kind}.", (DEFINED[kind],), has_etag=True)


def _created(kind: Kind) -> RouteResponse:
    return RouteResponse(
        f"The new {kind}.", (DEFINED[kind],), HTTPStatus.CREATED, has_etag=True
    )


def _write_access(endpoints: DefinitionEndpoints) -> Access:
    return Access(role=endpoints.writer, operators_only=endpoints.kind not in CUSTOMERS_KINDS)


def _list_parameters(kind: Kind) -> tuple[QueryParameter, ...]:
    name = f"({'|'.join(fields_of(kind))})"
    return (
        QueryParameter(
            "sort",
            "Fields, comma between; one after - descends. Also a.b, for one inside another.",
            {"type": "string", "pattern": f"^-?{name}(,-?{name})*$"},
        ),
        QueryParameter(
            "fields",
            "Only these, comma between; all if left out.",
            {"type": "string", "pattern": f"^{name}(,{name})*$"},
        ),
    )


def _filters(kind: Kind) -> tuple[QueryParameter, ...]:
    """One parameter per field; of a list, for one of its items."""
    found = []
    for name in fields_of(kind):
        schema: dict[str, Any] = {
            "type": "array",
            "items": _filter_schema(kind, name),
            "maxItems": MAX_QUERY_VALUES,
        }
        found.append(
            QueryParameter(
                name, f"Only those whose `{name}` is, or holds, one of these.", schema
            )
        )
    return tuple(found)


def _filter_schema(kind: Kind, name: str) -> dict[str, Any]:
    info = KINDS[kind].model_fields.get(name)
    if info is None or info.annotation is None:
        return {"type": "integer"} if name == "version" else _INSTANT
    schema = TypeAdapter(info.annotation).json_schema()
    choices = schema.get("anyOf", [schema])
    words = [word for one in choices for word in one.get("enum", ())]
    if words:
        return {"enum": [*words, *("null" for one in choices if one.get("type") == "null")]}
    if any(one.get("format") == "date-time" for one in choices):
        return {"anyOf": [_INSTANT, {"enum": ["null"]}]}
    plain = [one for one in choices if one.get("type") in _PLAIN]
    return {"type": plain[0]["type"]} if len(plain) == 1 else {"type": "string"}


_PLAIN: Final = frozenset({"boolean", "integer", "number"})
_INSTANT: Final = {"type": "string", "format": "date-time"}


def _queue_routes(owners: Owners, queue_endpoints: QueueEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/insights/{insight_id}/queue",
            queue_endpoints.get_queue,
            "getInsightQueue",
            "What waits in an insight, whose it is, and how fast it goes",
            (RouteResponse("The queue.", (QueueView,)),),
            READ_ERRORS,
            access=read_access(owners.insight),
        ),
        Route(
            "POST",
            "/v1/insights/{insight_id}/forecast",
            queue_endpoints.post_forecast,
            "forecastWeights",
            "Who would start when if customers had other weights; nothing is changed",
            (RouteResponse("The forecast.", (ForecastView,)),),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError),
            body_models=(ForecastRequest,),
            access=Access(role=Role.READ, operators_only=True),
        ),
    )


def _health_route(owners: Owners, insight_health: InsightHealthEndpoints) -> Route:
    return Route(
        "PUT",
        "/v1/insights/{insight_id}/health",
        insight_health.put,
        "putInsightHealth",
        "Report a value of an insight's health, by which its cap in flight is multiplied",
        (RouteResponse("Passed on.", (HealthReportView,), HTTPStatus.ACCEPTED),),
        (*BODY_ERRORS, InvalidError, *READ_ERRORS, ForbiddenError),
        body_models=(HealthReport,),
        access=Access(role=Role.OPERATE, path_object=owners.insight, changes=True),
    )


_SUBMISSION_ERRORS: Final = (
    InvalidError,
    IdConflictError,
    DuplicateError,
    QuotaError,
    CapacityError,
)

_RUN_ERRORS: Final = (
    *BODY_ERRORS,
    SubmissionError,
    ForbiddenError,
    UnavailableError,
)


def template_routes(
    owners: Owners, runs: TemplateRunEndpoints, resubmissions: ResubmissionEndpoints
) -> tuple[Route, ...]:
    """Run a template, preview a run, explain a route, try refused agendas again."""
    return (
        *_run_routes(owners, runs),
        _split_route(owners, runs),
        *_explain_routes(owners, runs),
        _resubmission_route(resubmissions),
    )


def _run_routes(owners: Owners, runs: TemplateRunEndpoints) -> tuple[Route, ...]:
    accepted = RouteResponse(
        "Acknowledged by Kafka; Location says where to read on.",
        (AcceptedAgenda,),
        HTTPStatus.ACCEPTED,
    )
    template = owners.defined("template")
    return (
        Route(
            "POST",
            "/v1/agenda-templates/{template_id}/run",
            runs.run,
            "runTemplate",
            "Submit the agenda that a template makes of a payload and parameters",
            (accepted,),
            (*_RUN_ERRORS, *_SUBMISSION_ERRORS, NotFoundError),
            body_models=(TEMPLATE_CALL,),
            query=(WAIT_FOR_SPACE,),
            submits=True,
            access=Access(role=Role.SUBMIT, path_object=template),
        ),
        Route(
            "POST",
            "/v1/agenda-templates/{template_id}/preview",
            runs.preview,
            "previewTemplate",
            "Show that agenda and where it would go; nothing is submitted",
            (RouteResponse("The agenda.", (Preview,)),),
            (*_RUN_ERRORS, NotFoundError),
            body_models=(TEMPLATE_CALL,),
            access=read_access(template),
        ),
    )


def _split_route(owners: Owners, runs: TemplateRunEndpoints) -> Route:
    return Route(
        "POST",
        "/v1/agenda-templates/{template_id}/split-preview",
        runs.preview_split,
        "previewSplit",
        "Count the agendas that a run would be divided among; nothing is submitted",
        (RouteResponse("The children.", (SplitPreview,)),),
        (*_RUN_ERRORS, NotFoundError),
        body_models=(TEMPLATE_CALL,),
        access=read_access(owners.defined("template")),
    )


def _explain_routes(owners: Owners, runs: TemplateRunEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/explain",
            runs.explain_agenda,
            "explainPlacement",
            "Why an agenda goes where it goes: how each insight fares with it now",
            (RouteResponse("The explanation.", (RouteExplanation,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
        Route(
            "POST",
            "/v1/placement/explain",
            runs.explain,
            "explainPlacementOf",
            "The same for an agenda, or a run of a template, that is not submitted",
            (RouteResponse("The explanation.", (RouteExplanation,)),),
            _RUN_ERRORS,
            body_models=(Agenda, TEMPLATE_RUN),
            access=read_access(),
        ),
    )


def _resubmission_route(resubmissions: ResubmissionEndpoints) -> Route:
    return Route(
        "POST",
        "/v1/resubmissions",
        resubmissions.post,
        "resubmitAgendas",
        "Submit refused agendas again, those that pass by the definitions in force now",
        (
            RouteResponse("Submitted.", (Resubmitted,), HTTPStatus.ACCEPTED),
            RouteResponse("Only counted.", (Resubmitted,)),
        ),
        (*_RUN_ERRORS, InvalidError),
        body_models=(Resubmission,),
        may_be_bare=True,
        submits=True,
        access=Access(role=Role.OPERATE),
    )
