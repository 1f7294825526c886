"""The library with which work is run: register handlers by operation type, and pull."""

from pop_stream.puller.handlers.builtin import builtin
from pop_stream.puller.handlers.errors import FinalError, RetryableError
from pop_stream.puller.handlers.invocation import OperationCall, SyncOperationCall
from pop_stream.puller.handlers.registry import Handlers, load_handlers
from pop_stream.puller.puller import Puller

__all__ = [
    "FinalError",
    "Handlers",
    "OperationCall",
    "Puller",
    "RetryableError",
    "SyncOperationCall",
    "builtin",
    "load_handlers",
]
