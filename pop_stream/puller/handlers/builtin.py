"""Built in: `noop`, `append`, `http`, `command`, `split`, and those of `waiting`."""

from pydantic import BaseModel, ConfigDict, JsonValue

from pop_stream.model.errors import SubmissionError
from pop_stream.policy.splitting.parent import SPLIT
from pop_stream.puller.handlers.command import CommandHandler
from pop_stream.puller.handlers.errors import FinalError, read_payload
from pop_stream.puller.handlers.http import HttpHandler
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.puller.handlers.split import SplitHandler
from pop_stream.puller.handlers.waiting import add_waiting
from pop_stream.settings import Settings


class AppendPayload(BaseModel):
    """Payload of an `append` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operations: tuple[dict[str, JsonValue], ...]


def builtin(settings: Settings) -> Handlers:
    """A registry with the built-in handlers.

    Args:
        settings: `allowed_commands` says what `command` may run, by default nothing;
            `http_networks` which internal networks `http` may call, by default none;
            `api_url` and `api_token` where and as whom `split` submits.
    """
    handlers = Handlers()
    http = HttpHandler(settings.http_networks)
    handlers.on_stop(http.close)
    handlers.handler("noop")(noop)
    add_waiting(handlers)
    handlers.handler("append")(append)
    handlers.handler("http")(http)
    handlers.handler("command")(CommandHandler(settings.allowed_commands))
    split = SplitHandler(settings)
    handlers.on_stop(split.close)
    handlers.handler(SPLIT)(split)
    return handlers


async def noop(operation: OperationCall) -> JsonValue:
    """Return the payload."""
    return operation.payload


async def append(operation: OperationCall) -> JsonValue:
    """Add the operations of the payload, often an earlier result, to the agenda."""
    operations = read_payload(AppendPayload, operation.payload).operations
    try:
        return {"appended": [*await operation.append(operations)]}
    except SubmissionError as error:
        raise FinalError(str(error)) from None
