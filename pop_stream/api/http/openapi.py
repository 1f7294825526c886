"""The OpenAPI document, made from the table of routes and the types of its answers."""

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, get_args, get_origin

import msgspec
from aiohttp import web
from pydantic import BaseModel, TypeAdapter

from pop_stream import __version__
from pop_stream.api.http import correlation, problems
from pop_stream.api.http.answers import JSON
from pop_stream.api.http.parameters import id_pattern
from pop_stream.api.http.route import QueryParameter, Route, RouteResponse
from pop_stream.api_models.problems import Problem
from pop_stream.model.errors import ForbiddenError, UnauthenticatedError, UnavailableError

_REF: Final = "#/components/schemas/"
_PARAMETER: Final = re.compile(r"{(\w+)}")

_DESCRIPTION: Final = """\
Submit agendas, follow them, and see what is in force.

Every error is an RFC 9457 problem with a stable `code`. Every answer carries
X-Correlation-Id, which is the client's own if it sent one. Instants are RFC 3339 in UTC.
Where callers are asked who they are, they send `Authorization: Bearer` with an API key or a
token of the configured issuer; `x-role` is the role that an operation needs. What belongs to
others is answered like what does not exist.
"""


class Document:
    """The document and its handler; describe the table before the first request.

    Args:
        requires_authentication: Whether callers must say who they are.
    """

    def __init__(self, *, requires_authentication: bool) -> None:
        self._asks_who_calls = requires_authentication
        self._text = b"{}"

    def describe(self, table: Sequence[Route]) -> None:
        """Write the document anew."""
        self._text = json.dumps(
            openapi(table, requires_authentication=self._asks_who_calls)
        ).encode()

    async def get(self, _: web.Request) -> web.Response:
        """The document."""
        return web.Response(body=self._text, status=HTTPStatus.OK, content_type=JSON)


def openapi(table: Sequence[Route], *, requires_authentication: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a table of routes.

    Where nobody is asked, it says so: that an operation needs a token would not be true.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pop_stream",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}] if requires_authentication else [],
        "paths": paths,
        "components": {
            "schemas": _schemas(table),
            "securitySchemes": {"bearer": _BEARER},
            "headers": {"X-Correlation-Id": _CORRELATION_HEADER},
        },
    }


_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `pop_...`, or a JSON Web Token of the configured issuer.",
}

_CORRELATION_HEADER: Final = {
    "description": "Finds the request in the log.",
    "required": True,
    "schema": {"type": "string", "pattern": correlation.PATTERN},
}

_CORRELATION_PARAMETER: Final = {
    "name": correlation.HEADER,
    "in": "header",
    "description": f"Echoed and logged; one is made unless it is {correlation.PATTERN}",
    "schema": {"type": "string"},
}


_VERSION: Final = {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [
            *(_parameter(name) for name in _PARAMETER.findall(route.path)),
            *(_optional(query, "query") for query in route.query),
            *(_optional(header, "header") for header in route.headers),
            _CORRELATION_PARAMETER,
        ],
        "responses": _responses(route),
    }
    if route.access.role is None:
        operation["security"] = []
    else:
        operation["x-role"] = route.access.role.value
    if route.body_models:
        schema = _one_of(route.body_models, at_least=1)
        content = {one: {"schema": schema} for one in route.media_types}
        for media_type, model in route.other_bodies.items():
            content[media_type] = {"schema": _one_of((model,), at_least=1)}
        operation["requestBody"] = {"required": not route.may_be_bare, "content": content}
    return operation


def _parameter(name: str) -> dict[str, Any]:
    shape = id_pattern(name)
    schema: dict[str, Any] = {
        "type": "string",
        "pattern": shape.pattern,
        "maxLength": shape.max_length,
    }
    if name == "version":
        schema = _VERSION
    if name == "operation":
        schema = {"type": "string", "minLength": 1, "maxLength": 200}
    if name == "attempt":
        schema = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _optional(query: QueryParameter, place: str) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": place,
        "description": query.description,
        "schema": dict(query.schema),
    }


def _responses(route: Route) -> dict[str, Any]:
    responses = {str(answer.status.value): _success(answer) for answer in route.answers}
    codes: dict[HTTPStatus, list[str]] = {}
    asked = () if route.access.role is None else _ASKED
    for error in dict.fromkeys((*route.errors, *asked)):
        codes.setdefault(problems.status_of(error), []).append(f"`{error.code}`")
    for status, names in sorted(codes.items()):
        responses[str(status.value)] = _problem(f"{status.phrase}: {', '.join(names)}.", status)
    responses["default"] = _problem("Any other problem.", None)
    return responses


def _success(answer: RouteResponse) -> dict[str, Any]:
    headers = _headers()
    if answer.status is HTTPStatus.ACCEPTED:
        headers["Location"] = {
            "description": "Of one agenda: where to read on.",
            "schema": {"type": "string", "format": "uri-reference"},
        }
    if answer.status is HTTPStatus.CREATED:
        headers["Location"] = {
            "description": "Where it is read.",
            "schema": {"type": "string", "format": "uri-reference"},
        }
    if answer.has_etag:
        headers["ETag"] = {
            "description": "The version, in quotes.",
            "required": True,
            "schema": {"type": "string", "pattern": '^"[0-9]+"$'},
        }
    response: dict[str, Any] = {"description": answer.description, "headers": headers}
    if answer.media_type is not None:
        schema = _one_of(answer.models) if answer.models else {"type": "string"}
        if answer.event:
            schema = _event(answer.event, schema)
        response["content"] = {answer.media_type: {"schema": schema}}
    return response


def _event(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """One event of a stream; so readers of OpenAPI 3.1 take the schema of a stream."""
    return {
        "type": "object",
        "description": "One event of the stream.",
        "properties": {
            "id": {"type": "string", "description": "The version, for Last-Event-ID."},
            "event": {"const": name},
            "data": {
                "type": "string",
                "contentMediaType": JSON,
                "contentSchema": dict(data),
            },
        },
        "required": ["id", "event", "data"],
    }


_ASKED: Final = (UnauthenticatedError, ForbiddenError, UnavailableError)
"""What every caller may be answered where credentials are asked for."""


def _problem(description: str, status: HTTPStatus | None) -> dict[str, Any]:
    headers = _headers()
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        seconds = {"type": "integer", "minimum": 1}
        headers["Retry-After"] = {"description": "In seconds.", "schema": seconds}
    if status is HTTPStatus.UNAUTHORIZED:
        scheme = {"type": "string"}
        headers["WWW-Authenticate"] = {"description": "What is taken.", "schema": scheme}
    content = {problems.MEDIA_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}}
    return {"description": description, "headers": headers, "content": content}


def _headers() -> dict[str, Any]:
    return {correlation.HEADER: {"$ref": f"#/components/headers/{correlation.HEADER}"}}


def _one_of(models: Sequence[Any], *, at_least: int = 0) -> dict[str, Any]:
    """Any of the models; a list of one holds so many at least."""
    schemas = [_reference(shape) for shape in models]
    if at_least:
        schemas = [
            one | {"minItems": at_least} if one.get("type") == "array" else one
            for one in schemas
        ]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _reference(shape: object) -> dict[str, Any]:
    if get_origin(shape) is list:
        return {"type": "array", "items": _reference(get_args(shape)[0])}
    if isinstance(shape, type) and issubclass(shape, BaseModel | msgspec.Struct):
        return {"$ref": f"{_REF}{shape.__name__}"}
    return {"type": "object"}


def _schemas(table: Iterable[Route]) -> dict[str, Any]:
    ours: set[type[msgspec.Struct]] = {Problem}
    pydantic: set[type[BaseModel]] = set()
    for shape in _shapes(table):
        if issubclass(shape, BaseModel):
            pydantic.add(shape)
        elif issubclass(shape, msgspec.Struct):
            ours.add(shape)
    schemas: dict[str, Any] = {}
    for model in pydantic:
        schema = TypeAdapter(model).json_schema(ref_template=f"{_REF}{{model}}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    _, components = msgspec.json.schema_components(ours, ref_template=f"{_REF}{{name}}")
    return dict(sorted((schemas | {k: _tidy(v) for k, v in components.items()}).items()))


def _shapes(table: Iterable[Route]) -> Iterable[type]:
    for route in table:
        for shape in (
            *route.body_models,
            *route.other_bodies.values(),
            *(one for answer in route.answers for one in answer.models),
        ):
            inner = get_args(shape)[0] if get_origin(shape) is list else shape
            if isinstance(inner, type):
                yield inner


def _tidy(schema: Mapping[str, Any]) -> dict[str, Any]:
    tidy = dict(schema)
    if "description" in tidy:
        tidy["description"] = inspect.cleandoc(tidy["description"])
    return tidy
