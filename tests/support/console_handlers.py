"""Work for the console to show: it takes its time and reports, or fails."""

import asyncio

from pop_stream.puller import FinalError, Handlers, OperationCall

handlers = Handlers()
STEPS = 20


@handlers.handler("show.work")
async def work(call: OperationCall):
    """As many seconds as the payload says, with reports on the way."""
    seconds = call.payload if isinstance(call.payload, int | float) else 0
    for step in range(STEPS if seconds else 0):
        await call.report(100 * step / STEPS, f"step {step} of {STEPS}")
        await asyncio.sleep(seconds / STEPS)
    return {"seconds": seconds}


@handlers.handler("show.fail")
async def fail(call: OperationCall):
    """Leave a diagnostic with the payload as its text, and fail for good."""
    call.note(str(call.payload), code="show", detail={"given": call.payload})
    msg = f"cannot do {call.payload}"
    raise FinalError(msg)
