"""Handlers of the tests that come from POP; `pop-stream dev` is given them."""

from pop_stream.puller import FinalError, Handlers, OperationCall

handlers = Handlers()


@handlers.handler("media.probe")
async def probe(call: OperationCall):
    """What it was given, and in which attempt."""
    headers = call.trace.headers if call.trace else {}
    return {"given": call.payload, "attempt": call.attempt, "frames": 24, "hd": True, **headers}


@handlers.handler("media.render")
async def render(call: OperationCall):
    """What it was given; fails in all attempts up to the one that its payload names."""
    payload = call.payload if isinstance(call.payload, dict) else {}
    await call.report(40, "rendering")
    if call.attempt <= payload.get("fails_for_good_until", 0):
        message = "the codec is missing"
        raise FinalError(message)
    if call.attempt <= payload.get("fails_until", 0):
        message = "the disk was full"
        raise RuntimeError(message)
    return {"given": call.payload, "attempt": call.attempt, "prior": call.prior is not None}


@handlers.handler("media.split")
async def split(call: OperationCall):
    """Adds a part per scene to the agenda."""
    return await call.append(
        [
            {"name": f"{call.name}-{scene}", "type": "media.probe", "payload": scene}
            for scene in call.payload["scenes"]
        ]
    )
