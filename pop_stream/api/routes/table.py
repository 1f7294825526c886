"""Everything that is served, as one table: router and document are both made from it.

Each resource has a table in a module of its own; this one puts them together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import HttpVersion11, web

from pop_stream.api.agendas.commands import Commands
from pop_stream.api.agendas.lists import AgendaLists
from pop_stream.api.agendas.progress import Progress
from pop_stream.api.agendas.questions import Explanations
from pop_stream.api.agendas.streams import Streams
from pop_stream.api.definitions.definitions import Resource
from pop_stream.api.health import HealthChecks
from pop_stream.api.http.access import Guard, Handler
from pop_stream.api.http.metrics import Metrics
from pop_stream.api.http.route import Route
from pop_stream.api.keys.keys import AuditReader, Keys
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.pulls import Pulls
from pop_stream.api.routes.agendas import agenda_routes
from pop_stream.api.routes.commands import command_routes
from pop_stream.api.routes.definitions import definition_routes
from pop_stream.api.routes.keys import key_routes
from pop_stream.api.routes.pulls import pull_routes
from pop_stream.api.routes.service import service_routes
from pop_stream.api.routes.templates import template_routes
from pop_stream.api.submissions.resubmissions import Resubmissions
from pop_stream.api.submissions.submissions import Submissions
from pop_stream.api.submissions.template_runs import TemplateRuns
from pop_stream.core.definitions.definitions import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """Those who serve the routes, and those who say whose the objects in their paths are."""

    owners: Owners
    submissions: Submissions
    progress: Progress
    commands: Commands
    lists: AgendaLists
    pulls: Pulls
    explanations: Explanations
    streams: Streams
    health: HealthChecks
    definitions: Mapping[Kind, Resource]
    template_runs: TemplateRuns
    resubmissions: Resubmissions
    keys: Keys
    audit: AuditReader
    metrics: Metrics
    document: Handler


def routes(handlers: Handlers) -> tuple[Route, ...]:
    """The table."""
    return (
        *agenda_routes(
            handlers.owners,
            handlers.submissions,
            handlers.progress,
            handlers.streams,
            handlers.explanations,
        ),
        *command_routes(handlers.owners, handlers.commands, handlers.lists),
        *definition_routes(handlers.owners, handlers.definitions, handlers.explanations),
        *template_routes(handlers.owners, handlers.template_runs, handlers.resubmissions),
        *key_routes(handlers.owners, handlers.keys, handlers.audit),
        *pull_routes(handlers.owners, handlers.pulls),
        *service_routes(handlers.health, handlers.metrics, handlers.document),
    )


def register(app: web.Application, table: tuple[Route, ...], guard: Guard) -> None:
    """Let the application serve the table, and HEAD where GET ends by itself."""
    for route in table:
        handler = guard.before(route.handler, route.access)
        app.router.add_route(route.method, route.path, handler, expect_handler=_welcome_body)
        if route.method == "GET" and not route.is_stream:
            app.router.add_head(route.path, handler)


async def _welcome_body(request: web.Request) -> None:
    """Answer `Expect: 100-continue`; any other expectation may be ignored by RFC 9110."""
    wanted = request.headers.get("Expect", "").lower() == "100-continue"
    if wanted and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun
