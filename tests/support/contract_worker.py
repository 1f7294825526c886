"""The worker in Python, a puller, that tests hold to the contract of workers."""

import asyncio
import os
from pathlib import Path

from pop_stream.puller import CompletedElsewhere, FinalError, NotYet, Puller

puller = Puller(os.environ["CONTRACT_INSIGHT"], concurrency=4)


def write(path, line):
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def is_there(path):
    return Path(path).exists()


def lines(path):
    return Path(path).read_text().splitlines()


@puller.handler("echo")
async def echo(call):
    return call.payload


@puller.handler("count")
async def count(call):
    write(call.payload["log"], "ran")
    return len(lines(call.payload["log"]))


@puller.handler("hold")
async def hold(call):
    log = call.payload["log"]
    write(log, f"begun {call.attempt}")
    await call.report(40, "page 2 of 5")
    call.note("it holds", code="held", detail={"page": 2})
    try:
        while not is_there(call.payload["until"]):  # noqa: ASYNC110  # a test makes it
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        write(log, f"stopped {call.stop_reason}")
        raise
    return {"held": call.attempt}


@puller.handler("flaky")
async def flaky(call):
    failing = {"attempts": 0, "tries": 0, **call.payload}
    if call.attempt <= failing["attempts"] or call.tries <= failing["tries"]:
        msg = "the service is away"
        raise ConnectionError(msg)
    return {"attempt": call.attempt, "tries": call.tries}


@puller.handler("refuse")
async def refuse(_):
    msg = "no such codec"
    raise FinalError(msg)


@puller.handler("large")
async def large(_):
    return "x" * 300_000


@puller.handler("scan")
async def scan(call):
    await call.append(call.payload["operations"])
    return len(call.payload["operations"])


@puller.handler("later")
async def later(call):
    if not is_there(call.payload["until"]):
        raise NotYet(1, "the file is not there")
    return {"attempt": call.attempt}


@puller.handler("hand-over")
async def hand_over(call):
    token = await call.completion_token(within_s=60)
    write(call.payload["log"], token)
    raise CompletedElsewhere(token)


if __name__ == "__main__":
    puller.run()
