"""Handlers of the library: `noop`, `sleep`, `append`, `http`, `command` and `split`."""

import asyncio
from time import monotonic
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pop_stream.model.errors import SubmissionError
from pop_stream.policy.splitting.parent import SPLIT
from pop_stream.puller.handlers.command import CommandHandler
from pop_stream.puller.handlers.errors import FinalError, read_payload
from pop_stream.puller.handlers.http import HttpHandler
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.puller.handlers.split import SplitHandler
from pop_stream.settings import Settings

_REPORT_EVERY_S: Final = 0.5


class SleepPayload(BaseModel):
    """Payload of a `sleep` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


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
    handlers.handler("sleep")(sleep)
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


async def sleep(operation: OperationCall) -> None:
    """Wait as long as the payload says, and report on it; see `SleepPayload`."""
    seconds = read_payload(SleepPayload, operation.payload).seconds
    begun = monotonic()
    while (left := seconds - (monotonic() - begun)) > 0:
        await asyncio.sleep(min(left, _REPORT_EVERY_S))
        await operation.report(100 * min(1.0, (monotonic() - begun) / seconds))


async def append(operation: OperationCall) -> JsonValue:
    """Add the operations of the payload, often an earlier result, to the agenda."""
    operations = read_payload(AppendPayload, operation.payload).operations
    try:
        return {"appended": [*await operation.append(operations)]}
    except SubmissionError as error:
        raise FinalError(str(error)) from None
