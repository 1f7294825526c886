"""The library with which work is run: register handlers by operation type, and pull."""

from pop_stream.pullers.builtin import builtin
from pop_stream.pullers.errors import FinalError, RetryableError
from pop_stream.pullers.handlers import Handlers, load_handlers
from pop_stream.pullers.operation_call import OperationCall, SyncOperationCall
from pop_stream.pullers.puller import Puller

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
