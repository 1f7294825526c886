"""The client of the HTTP API: typed, asynchronous, and all of it."""

from pop_stream.client.client import Client
from pop_stream.client.definitions import StoredDefinition, DefinitionPage
from pop_stream.client.errors import (
    ApiError,
    ApiConflictError,
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
from pop_stream.client.retry import NO_RETRY, Retry
from pop_stream.client.tracing import tracing
from pop_stream.core.values.trace import Trace
from pop_stream.shapes.commands import BulkCommand, Selection

__all__ = [
    "NO_RETRY",
    "ApiError",
    "BulkCommand",
    "Client",
    "ApiConflictError",
    "StoredDefinition",
    "ApiFaultError",
    "ApiForbiddenError",
    "ApiNotFoundError",
    "DefinitionPage",
    "ApiPreconditionError",
    "ApiRateLimitedError",
    "ApiRefusedError",
    "Retry",
    "Selection",
    "Trace",
    "ApiUnauthenticatedError",
    "ApiUnavailableError",
    "ApiUnreachableError",
    "tracing",
]
