"""One row of the table of routes: a method of a path, with all that its document says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel

from pop_stream.api.http.access import Access, Handler
from pop_stream.api.http.answers import JSON
from pop_stream.api.http.parameters import most_values
from pop_stream.model.errors import (
    LimitError,
    NotFoundError,
    PopStreamError,
    RateLimitError,
    UnavailableError,
)

EVENT_STREAM: Final = "text/event-stream"

CHANGE_ERRORS: Final = (LimitError, RateLimitError)
"""What a change of a definition or a key may be refused with, besides what it says."""

READ_ERRORS: Final = (NotFoundError, UnavailableError)
"""What reading one object may be refused with."""


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a success looks like.

    Attributes:
        models: Types of which the JSON is one; without any, the answer is not JSON.
        has_etag: Whether a header has the version.
        event: Of an event stream, the name of its events; the models are those of their data.
    """

    description: str
    models: tuple[Any, ...] = ()
    status: HTTPStatus = HTTPStatus.OK
    media_type: str | None = JSON
    has_etag: bool = False
    event: str = ""


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of a route's query, or a header.

    Attributes:
        schema: JSON schema of its value; of a list, the schema of the whole, whose values
            are given by repeating the parameter.
    """

    name: str
    description: str
    schema: Mapping[str, Any]


def repeatable(
    shape: type[BaseModel], name: str, description: str, items: Mapping[str, Any]
) -> QueryParameter:
    """A parameter that may be given several times: as often as its field of the model says.

    Args:
        shape: The model that `read_query` makes of the query.
        name: Of the parameter and of its field.
        description: For people.
        items: JSON schema of each value.
    """
    most = most_values(shape, name)
    return QueryParameter(
        name, description, {"type": "array", "items": items, "maxItems": most}
    )


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        name: Of the operation, for generated clients.
        summary: One line for a reader of the document.
        errors: What it may be refused with, besides faults of this side.
        body_models: Types of which the body is one; none if there is no body.
        may_be_bare: Whether a body may be left out.
        media_types: What a body may be said to be.
        other_bodies: By media type beside those, of what else a body is then one.
        query: Parameters of its query; any other is refused.
        headers: It heeds these, besides those that every route does.
        submits: Whether agendas come in by it, so that traces begin with it.
        access: What it asks of its caller; there is no default, so none is forgotten.
    """

    method: str
    path: str
    handler: Handler
    name: str
    summary: str
    answers: tuple[RouteResponse, ...]
    errors: tuple[type[PopStreamError], ...] = ()
    body_models: tuple[Any, ...] = ()
    may_be_bare: bool = False
    media_types: tuple[str, ...] = (JSON,)
    other_bodies: Mapping[str, Any] = field(default_factory=dict)
    query: tuple[QueryParameter, ...] = ()
    headers: tuple[QueryParameter, ...] = ()
    submits: bool = False
    access: Access = field(kw_only=True)

    @property
    def is_stream(self) -> bool:
        """Whether the answer goes on until something happens."""
        return any(answer.media_type == EVENT_STREAM for answer in self.answers)
