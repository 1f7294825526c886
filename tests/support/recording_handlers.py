"""Work whose starts are on record, and that fails when it is to."""

from pop_stream.lab.chaos.handlers import work
from pop_stream.puller import Handlers, OperationCall, RetryableError

handlers = Handlers()


@handlers.handler("test.fail-once")
async def fail_once(call: OperationCall) -> None:
    """Note the start; the first attempt fails."""
    await work(call)
    if call.attempt == 1:
        msg = "the first attempt always fails"
        raise RetryableError(msg)
