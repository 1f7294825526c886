"""The client of the HTTP API: typed, asynchronous, and all of it."""

from pop_stream.api_models.commands import BulkCommand, Selection
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
    "Retry",
    "Selection",
    "StoredDefinition",
    "Trace",
    "tracing",
]
