"""The client of the HTTP API: typed, asynchronous, and all of it.

`Client` has a method or a group of methods for every operation of the API; a test compares the
two. Answers are the types of `api_models`. It needs an address and, where the API asks for
one, a token; it is a context manager and may be shared by any number of tasks of one event
loop.

A request that the API did not look at (429, no connection) is sent again within
`Retry.within`, with back-off and never before `Retry-After`. What it may have done (503, a
connection that broke, no answer in time) is sent again only if doing it twice is the same as
doing it once: reads, and submissions whose agendas have ids. Anything else is raised as an
`ApiError`; `errors.py` draws the tree.

Event streams are resumed with `Last-Event-ID` when a connection breaks, and end with the final
event.
"""

from pop_stream.api_models.commands import BulkCommand, ListSelection, Selection
from pop_stream.client.client import Client
from pop_stream.client.definitions import DefinitionPage, StoredDefinition
from pop_stream.client.errors import (
    ApiConflictError,
    ApiError,
    ApiFaultError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiPreconditionError,
    ApiRateLimitedError,
    ApiRefusedError,
    ApiUnauthenticatedError,
    ApiUnavailableError,
    ApiUnreachableError,
)
from pop_stream.client.tracing import tracing
from pop_stream.client.transport import NO_RETRY, Retry
from pop_stream.model.trace import Trace

__all__ = [
    "NO_RETRY",
    "ApiConflictError",
    "ApiError",
    "ApiFaultError",
    "ApiForbiddenError",
    "ApiNotFoundError",
    "ApiPreconditionError",
    "ApiRateLimitedError",
    "ApiRefusedError",
    "ApiUnauthenticatedError",
    "ApiUnavailableError",
    "ApiUnreachableError",
    "BulkCommand",
    "Client",
    "DefinitionPage",
    "ListSelection",
    "Retry",
    "Selection",
    "StoredDefinition",
    "Trace",
    "tracing",
]
