"""Hand-overs of a puller that is killed right before, and right after, it reports them."""

import asyncio
import signal

import pytest
import pytest_asyncio
from deadlines import scaled, within
from one_process import PATIENCE_S, one_process
from part_processes import process

from pop_stream.model.definitions import Insight, Mappers

PULLER = """
import os, signal
from pathlib import Path
from pop_stream.puller import CompletedElsewhere, Puller

tokens, dies = Path({tokens!r}), {dies}
puller = Puller("media")

@puller.handler("call")
async def call(operation):
    token = await operation.completion_token(within_s=3_600)
    with tokens.open("a") as file:
        file.write(token + "\\n")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    raise CompletedElsewhere(token, "the cloud function")

@puller.handler("note")
async def note(operation):
    return operation.payload

puller.run()
"""
AGENDA = (
    {"name": "call", "type": "call"},
    {"name": "after", "type": "note", "payload": "@<call.out::/size>"},
)

pytestmark = pytest.mark.timeout(600)


class Farm:
    """Pullers as processes, and the tokens that their handlers handed over."""

    def __init__(self, system, folder):
        self.system = system
        self._file = folder / "tokens"

    @property
    def tokens(self):
        return self._file.read_text().split() if self._file.exists() else []

    def puller(self, *, dies=False):
        program = PULLER.format(tokens=str(self._file), dies=dies)
        settings = self.system.settings
        return process("puller", settings, program, POP_API_URL=self.system.url)

    async def handed_over(self, count):
        """The tokens, once there are so many, and the last is reported."""
        await self.system.until("/v1/agendas/a1", lambda _: len(self.tokens) == count)
        await self.system.state("a1", "waiting")
        return self.tokens

    async def complete(self, token, status=202, **outcome):
        body = {"token": token, **outcome}
        return await self.system.post("/v1/completions", body, status=status)

    async def succeeded_with(self, size):
        ended = await self.system.state("a1", "succeeded", "failed")
        operations = await self.system.operations("a1")
        assert ended["state"] == "succeeded", ended
        results = [operations[name]["result"] for name in ("call", "after")]
        assert results == [{"size": size}, size]


@pytest_asyncio.fixture
async def farm(settings, tmp_path):
    insight = Insight(
        id="media",
        mappers=Mappers(operation_types=("call",)),
        partitions=1,
        lease_ms=int(scaled(3.0) * 1000),
        max_attempts=10,
    )
    async with one_process(settings, tmp_path, [insight], within_s=500) as system:
        await system.submit("a1", *AGENDA)
        yield Farm(system, tmp_path)


async def killed_by_itself(puller):
    async with within(PATIENCE_S):
        assert await puller.wait() == -signal.SIGKILL


async def test_a_puller_killed_after_its_report_is_not_needed_to_complete(farm):
    async with farm.puller() as puller:
        [token] = await farm.handed_over(1)
        puller.send_signal(signal.SIGKILL)
        await puller.wait()
    first = await farm.complete(token, result={"size": 12})
    assert await farm.complete(token, result={"size": 12}) == first
    twice = await farm.complete(token, result={"size": 13}, status=409)
    assert (twice["code"], bool(twice["detail"])) == ("completion_refused", True)
    async with farm.puller():
        await farm.succeeded_with(12)
    assert farm.tokens == [token], "its handler is not called again"


async def test_a_token_of_a_puller_killed_before_its_report_is_refused_once_another_waits(farm):
    async with farm.puller(dies=True) as puller:
        await killed_by_itself(puller)
    async with farm.puller():
        lost, token = await farm.handed_over(2)
        refused = await farm.complete(lost, result={"size": 1}, status=409)
        assert (refused["code"], bool(refused["detail"])) == ("completion_refused", True)
        await farm.complete(token, result={"size": 2})
        await farm.succeeded_with(2)
    late = await farm.complete(lost, result={"size": 1}, status=410)
    assert late["code"] == "completion_late"


async def test_an_answer_that_comes_before_the_lost_report_ends_nothing_and_blocks_nothing(
    farm,
):
    async with farm.puller(dies=True) as puller:
        await killed_by_itself(puller)
    [lost] = farm.tokens
    # Of an attempt that still counts as running: kept for a report that never comes.
    status, answer = await farm.system.call(
        "POST", "/v1/completions", json={"token": lost, "result": {"size": 1}}
    )
    assert status in {202, 409}, answer
    async with farm.puller():
        _, token = await farm.handed_over(2)
        await asyncio.gather(*(farm.complete(token, result={"size": 2}) for _ in range(3)))
        await farm.succeeded_with(2)
    again = await farm.complete(lost, result={"size": 1}, status=410)
    assert again["detail"]
