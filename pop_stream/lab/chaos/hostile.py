"""A run in which one customer attacks with an ordinary key while another one works.

First the quiet customer is alone: how long its agendas wait then is the measure. Then the
hostile one attacks for the rest of the time. What is promised: the quiet one's waits stay
within twice what they were, nothing of it is lost or refused, no answer is a fault of the
server, and no part ends.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
from pydantic import SecretStr

from pop_stream.auth.keys import make_key
from pop_stream.client.client import Client
from pop_stream.client.errors import ApiError
from pop_stream.clock import WallClock
from pop_stream.composition.client import open_client
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.figures import percentiles_ms
from pop_stream.lab.bench.meter import read_usage
from pop_stream.lab.chaos.attacks import ATTACKS, HostileCustomer, wage
from pop_stream.lab.chaos.handlers import STARTS, WORK, read_starts
from pop_stream.lab.chaos.load import INSIGHTS, PARAM
from pop_stream.lab.chaos.run import DEFINITIONS, random_port, settle
from pop_stream.model.identity import Principal, Role
from pop_stream.model.revisions import Author
from pop_stream.policy.lifecycle.states import State
from pop_stream.postgres.keys import PostgresKeys
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.pool import open_pool

QUIET: Final = "anna"
HOSTILE: Final = "flood"

MAX_RATIO: Final = 2.0
"""What is promised: under attack, p99 of the quiet customer's waits is at most so many times
what it is alone."""

_HANDLERS: Final = "pop_stream.lab.chaos.handlers:handlers"
_ROLES: Final = frozenset({Role.SUBMIT, Role.READ, Role.OPERATE})
_WARM_UP_S: Final = 10.0
_SETTLES_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class HostileOptions:
    """What a run does.

    Attributes:
        alone_s: How long the quiet customer is alone.
        attacked_s: How long it is attacked after that.
    """

    folder: Path
    seed: int
    alone_s: float
    attacked_s: float
    rate_per_s: float


@dataclass(slots=True)
class QuietLoad:
    """Submissions of the quiet customer: when each was due, and what became of it.

    Attributes:
        due_at: By agenda id, in seconds since the epoch.
        refused: What was answered instead of an id.
    """

    due_at: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HostileResult:
    """What was found.

    Attributes:
        alone: Waits of the quiet customer's agendas from due to start, in seconds.
        unended: Its agendas that have not succeeded.
        restarts: By part, how often it was started again.
        rss_mb: By part, resident before the attack and at its end.
    """

    alone: list[float]
    attacked: list[float]
    unended: list[str]
    refused: list[str]
    restarts: Mapping[str, int]
    server_errors: Mapping[str, int]
    answers: Mapping[str, int]
    rss_mb: Mapping[str, tuple[float, float]]

    @property
    def ratio(self) -> float:
        """p99 of the waits under attack by that alone."""
        alone, attacked = (percentiles_ms(one)["p99"] for one in (self.alone, self.attacked))
        return attacked / alone if alone and attacked else float("inf")

    def broken(self) -> Iterator[str]:
        """The promises that were not kept, in words."""
        if self.ratio > MAX_RATIO:
            yield f"the quiet customer's p99 is {self.ratio:.1f} times what it was alone"
        if self.unended:
            yield f"{len(self.unended)} agendas did not succeed, such as {self.unended[0]}"
        if self.refused:
            yield f"{len(self.refused)} submissions were refused: {self.refused[0]}"
        if self.restarts:
            yield f"parts ended: {dict(self.restarts)}"
        if self.server_errors:
            yield f"faults of the server: {dict(self.server_errors)}"


async def run_hostile(options: HostileOptions, on_progress: OnProgress) -> HostileResult:
    """Start a stack that asks everybody for a key, measure, attack, and take it down.

    Raises:
        CommandError: If something does not start.
    """
    starts = options.folder.absolute() / f"starts-{secrets.token_hex(4)}"
    plan = StackPlan(
        folder=options.folder,
        definitions=DEFINITIONS,
        port=random_port(),
        pullers=1,
        handlers=(_HANDLERS,),
        overrides={
            "topic_prefix": f"hostile-{secrets.token_hex(3)}.",
            "puller_concurrency": 16,
            "auth": "required",
            "signing_secrets": (secrets.token_hex(32),),
        },
        environment={STARTS: str(starts)},
    )
    stack = Stack(plan, on_progress)
    async with stack, failing_with(stack), AsyncExitStack() as opened:
        hostile = await _enter_hostile(opened, stack, options.seed)
        token = await _token(stack, QUIET)
        settings = stack.settings.model_copy(update={"api_token": SecretStr(token)})
        quiet = await opened.enter_async_context(open_client(settings))
        return await _measure(options, stack, starts, quiet, hostile, on_progress)


async def _enter_hostile(opened: AsyncExitStack, stack: Stack, seed: int) -> HostileCustomer:
    session = await opened.enter_async_context(aiohttp.ClientSession())
    publisher = await opened.enter_async_context(
        connections.publisher(stack.settings, client_id="hostile")
    )
    return HostileCustomer(
        url=stack.settings.api_url.rstrip("/"),
        token=await _token(stack, HOSTILE),
        customer_id=HOSTILE,
        session=session,
        publisher=publisher,
        submissions=Topics(stack.settings.topic_prefix).submissions,
        chance=Random(seed),  # noqa: S311  # a workload, no secret
    )


async def _token(stack: Stack, customer_id: str) -> str:
    """That of a new key with all that a customer may do."""
    operator = Principal(name="chaos", customer_id=None, roles=frozenset(Role))
    key, token = make_key(
        customer_id=customer_id, roles=_ROLES, now=WallClock().now(), created_by=operator.name
    )
    async with open_pool(stack.settings) as pool:
        await PostgresKeys(pool).create(key, Author(principal=operator, request_id="chaos"))
    return token


async def _measure(  # what a run has
    options: HostileOptions,
    stack: Stack,
    starts: Path,
    quiet: Client,
    hostile: HostileCustomer,
    on_progress: OnProgress,
) -> HostileResult:
    warm, alone, attacked = QuietLoad(), QuietLoad(), QuietLoad()
    await _submit(warm, quiet, options.rate_per_s, _WARM_UP_S)
    on_progress(f"{QUIET} is alone for {options.alone_s:g} s")
    await _submit(alone, quiet, options.rate_per_s, options.alone_s)
    before = read_usage(stack.processes())
    on_progress(f"{HOSTILE} attacks for {options.attacked_s:g} s")
    async with _attacked_by(hostile):
        await _submit(attacked, quiet, options.rate_per_s, options.attacked_s)
    after = read_usage(stack.processes())
    on_progress("waiting until all have ended")
    mine = [*alone.due_at, *attacked.due_at]
    await settle(stack.settings, mine, within_s=_SETTLES_WITHIN_S)
    first = _first_starts(starts)
    return HostileResult(
        alone=_waits(alone, first),
        attacked=_waits(attacked, first),
        unended=await _unended(stack, mine),
        refused=alone.refused + attacked.refused,
        restarts={
            name: one.restarts
            for name, one in stack.supervisor.status().items()
            if one.restarts
        },
        server_errors=hostile.server_errors,
        answers={
            f"{attack} {said}": n for (attack, said), n in sorted(hostile.answers.items())
        },
        rss_mb={one: (before[one].rss_mb, after[one].rss_mb) for one in before.keys() & after},
    )


@asynccontextmanager
async def _attacked_by(hostile: HostileCustomer) -> AsyncIterator[None]:
    attacking = asyncio.create_task(wage(hostile, ATTACKS))
    try:
        yield
    finally:
        attacking.cancel()
        with suppress(asyncio.CancelledError):
            await attacking


async def _submit(load: QuietLoad, api: Client, rate_per_s: float, seconds: float) -> None:
    """Submit at even intervals, whatever is answered; returns once everything is."""
    loop, clock = asyncio.get_running_loop(), WallClock()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate_per_s * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate_per_s - loop.time()))
            tasks.create_task(_submit_one(load, api, clock.now().timestamp()))


async def _submit_one(load: QuietLoad, api: Client, due_at: float) -> None:
    agenda: Mapping[str, Any] = {
        "customer_id": QUIET,
        "params": {PARAM: INSIGHTS[0]},
        "operations": [{"name": "o", "type": WORK, "payload": 0}],
    }
    try:
        answer = await api.submit(agenda)
    except ApiError as error:
        load.refused.append(str(error))
    else:
        load.due_at[answer.id] = due_at


def _first_starts(starts: Path) -> Mapping[str, float]:
    first: dict[str, float] = {}
    for one in read_starts(starts):
        first.setdefault(one.agenda_id, one.at)
    return first


def _waits(load: QuietLoad, first: Mapping[str, float]) -> list[float]:
    """From due to start, of all that were started."""
    return [first[one] - due_at for one, due_at in load.due_at.items() if one in first]


async def _unended(stack: Stack, agenda_ids: list[str]) -> list[str]:
    async with open_pool(stack.settings) as pool:
        states = await PostgresSummaryScan(pool).states(agenda_ids)
    return [
        one
        for one in agenda_ids
        if one not in states or states[one].state is not State.SUCCEEDED
    ]
