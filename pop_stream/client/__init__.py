"""The client of the HTTP API: typed, asynchronous, and all of it."""

from pop_stream.client.client import Client
from pop_stream.client.definitions import Defined, Page
from pop_stream.client.errors import (
    ApiError,
    ConflictError,
    FaultError,
    ForbiddenError,
    NotFoundError,
    PreconditionError,
    RateLimitedError,
    RefusedError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
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
    "ConflictError",
    "Defined",
    "FaultError",
    "ForbiddenError",
    "NotFoundError",
    "Page",
    "PreconditionError",
    "RateLimitedError",
    "RefusedError",
    "Retry",
    "Selection",
    "Trace",
    "UnauthenticatedError",
    "UnavailableError",
    "UnreachableError",
    "tracing",
]
