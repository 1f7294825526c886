"""An agenda as JSON: which insight would take it, how each fared, and then submit it.

The agenda, or the run of a template, is asked about as it is typed; nothing is submitted by
that.
"""

from http import HTTPStatus
from typing import Any
from uuid import uuid4

import msgspec
from multidict import MultiMapping

from pop_stream.api_models.submissions import RouteExplanation
from pop_stream.client import (
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiUnauthenticatedError,
)
from pop_stream.console.diff import as_text
from pop_stream.console.layout import title_and_status
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.definitions import Mappers
from pop_stream.model.errors import Issue, IssuesError, PopStreamError, SubmissionError
from pop_stream.model.identity import Role
from pop_stream.model.validation import shorten

_CONTENT = "content"


async def routing(view: PageView) -> Page:
    """The form, with a run of a template or an agenda of an insight if the address names one.

    Raises:
        NotFoundError: If there is none of that name that the viewer sees.
    """
    begin: dict[str, Any] = {"customer_id": view.caller.customer_id or ""}
    operation = {"name": "first", "type": "http"}
    if template_id := view.query.get("template_id", ""):
        await view.client.templates.get(template_id)
        begin = {"template_id": template_id, "params": {}, "payload": {}}
    else:
        if insight_id := view.query.get("insight_id", ""):
            mappers = (await view.client.insights.get(insight_id)).definition.mappers
            operation = _fitting(mappers)
        begin["operations"] = [operation]
    return _page(view, as_text(begin), str(uuid4()))


async def explain_route(view: PageView, form: MultiMapping[str]) -> Page | str:
    """The form again, with where it would go or what is wrong; or submit it, if that is asked.

    Sent twice, it is accepted once: the form has the id of an agenda that names none.
    """
    text, agenda_id = form.get(_CONTENT, ""), form.get("id", "")
    try:
        content = msgspec.json.decode(text)
        if not isinstance(content, dict):
            message = "must be a JSON object: an agenda, or template_id, params and payload"
            raise SubmissionError([Issue(_CONTENT, shorten(content), message)])
        if form.get("do") == "submit":
            accepted = await view.client.submit({"id": agenda_id, **content})
            return f"/agendas/{accepted.id}?did=submit"
        explained = await view.client.explain_placement(content)
    except (ApiUnauthenticatedError, ApiForbiddenError, ApiNotFoundError):
        raise
    except (ApiError, IssuesError) as error:
        return _page(view, text, agenda_id, error=error)
    except (ValueError, RecursionError) as error:
        issue = Issue(_CONTENT, shorten(text), f"is no JSON: {error}")
        return _page(view, text, agenda_id, error=SubmissionError([issue]))
    return _page(view, text, agenda_id, explained=explained)


def _fitting(mappers: Mappers) -> dict[str, Any]:
    """An operation that the mappers take, as far as a type or a name makes one."""
    names, types = mappers.operation_names, mappers.operation_types
    return {"name": names[0] if names else "first", "type": types[0] if types else "http"}


def _page(
    view: PageView,
    text: str,
    agenda_id: str,
    *,
    explained: RouteExplanation | None = None,
    error: PopStreamError | None = None,
) -> Page:
    issues = getattr(error, "issues", ())
    values = {
        "text": text,
        "agenda_id": agenda_id,
        "may_submit": view.may(Role.SUBMIT),
        "explained": explained,
        "issues": issues,
        "detail": str(error) if error and not issues else "",
    }
    status = title_and_status(error)[1] if error else HTTPStatus.OK
    return Page("routing.html", "Which insight takes it", values, status=status)
