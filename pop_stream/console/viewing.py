"""What a page is given: who looks, a client of the API, and what was asked a moment ago."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from multidict import MultiMapping

from pop_stream.api_models.keys import CallerView
from pop_stream.api_models.queues import QueueView
from pop_stream.client import NO_RETRY, ApiError, Client
from pop_stream.clock import WallClock
from pop_stream.console.sessions import Session
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import Role

MAX_CLIENTS: Final = 200
"""Viewers whose connections to the API are kept open."""

QUEUE_TTL_S: Final = 2.0
"""However many look at an insight, it is asked about its queue once in so long."""

QUEUE_WITHIN_S: Final = 2.0
"""A page that shows several queues waits no longer for one; it shows that it has no answer."""

FINDINGS_TTL_S: Final = 60.0
"""However many look, the doctor looks at the installation once in so long."""

SAMPLES: Final = 60
"""Points of a sparkline."""

SERVICE_POINTS: Final = 120
"""Most points of what customers were given over time."""

MAX_SERVED: Final = 50
"""Customers of an insight whose service is followed."""

_CLOCK: Final = WallClock()
_MAX_QUEUES: Final = 2_000
_TIMEOUT: Final = timedelta(seconds=10)


class Clients:
    """A client of the API for each viewer.

    Args:
        api_url: Where the API listens; asked when the first client is made.
    """

    def __init__(self, api_url: Callable[[], str]) -> None:
        self._api_url = api_url
        self._clients: OrderedDict[str | None, Client] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, token: str | None) -> Client:
        """The client that shows this key."""
        client = self._clients.get(token)
        if client is None:
            client = Client(self._api_url(), token=token, timeout=_TIMEOUT, retry=NO_RETRY)
            self._clients[token] = await client.__aenter__()
        self._clients.move_to_end(token)
        if len(self._clients) > MAX_CLIENTS:
            _, oldest = self._clients.popitem(last=False)
            closing = asyncio.create_task(oldest.__aexit__(None, None, None))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return client

    async def close(self) -> None:
        """Close all of them."""
        for client in self._clients.values():
            await client.__aexit__(None, None, None)
        self._clients.clear()


@dataclass(frozen=True, slots=True)
class ServicePoint:
    """What customers had been given by an instant, in worker-seconds since the first look.

    Attributes:
        at: The present instant, as the scheduler answered it.
        weights: By customer, as they were then.
    """

    at: datetime
    delivered_s: Mapping[str, float]
    weights: Mapping[str, float]


class ServiceHistory:
    """What an insight's customers were given, from one look to the next.

    The scheduler's counts begin again when another one takes over: what is less than before
    is taken to be new. Of more than `SERVICE_POINTS` every second one is left out, so that any
    time fits, and points are further apart the longer it is.
    """

    def __init__(self) -> None:
        self.points: list[ServicePoint] = []
        self._counted: dict[str, float] = {}
        self._least_s = 0.0

    def note(self, queue: QueueView) -> None:
        """Count what was given since the last look."""
        given = dict(self.points[-1].delivered_s) if self.points else {}
        for one in queue.customers[:MAX_SERVED]:
            before = self._counted.get(one.customer_id, one.delivered_s)
            is_new = one.delivered_s < before
            more = one.delivered_s if is_new else one.delivered_s - before
            given[one.customer_id] = given.get(one.customer_id, 0.0) + more
            self._counted[one.customer_id] = one.delivered_s
        weights = {one.customer_id: one.weight for one in queue.customers}
        point = ServicePoint(queue.at, given, weights)
        if len(self.points) > 1 and _seconds(self.points[-2], point) < self._least_s:
            self.points.pop()
        self.points.append(point)
        if len(self.points) > SERVICE_POINTS:
            self.points = self.points[::2]
            self._least_s = _seconds(*self.points[:2])


def _seconds(one: ServicePoint, other: ServicePoint) -> float:
    return (other.at - one.at).total_seconds()


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A queue as it was answered, and how many were ready at the times before.

    Attributes:
        queue: None if there was no answer.
        ready: Oldest first, at most `SAMPLES`, one for each time it was asked.
        service: Since somebody who sees the same first looked at it.
    """

    queue: QueueView | None
    ready: Sequence[int]
    service: ServiceHistory


class QueueCache:
    """The queues of insights as each caller sees them, asked for again after a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: OrderedDict[tuple[str | None, str], tuple[float, QueueSample]]
        self._known = OrderedDict()
        self._asked: dict[tuple[str | None, str], asyncio.Task[QueueSample]] = {}

    async def get(self, view: "PageView", insight_id: str) -> QueueSample:
        """The queue, at most `QUEUE_TTL_S` old, or without an answer."""
        key = (view.caller.customer_id, insight_id)
        known = self._known.get(key)
        if known is not None and self._now() - known[0] < QUEUE_TTL_S:
            return known[1]
        task = self._asked.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(view, key))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, view: "PageView", key: tuple[str | None, str]) -> QueueSample:
        before = self._known[key][1] if key in self._known else None
        ready = deque(before.ready if before else (), SAMPLES)
        service = before.service if before else ServiceHistory()
        try:
            async with asyncio.timeout(QUEUE_WITHIN_S):
                queue = await view.client.insights.queue(key[1])
        except (ApiError, NotFoundError, TimeoutError):
            sample = QueueSample(None, tuple(ready), service)
        else:
            ready.append(queue.ready)
            service.note(queue)
            sample = QueueSample(queue, tuple(ready), service)
        self._known[key] = (self._now(), sample)
        self._known.move_to_end(key)
        while len(self._known) > _MAX_QUEUES:
            self._known.popitem(last=False)
        return sample


class FindingsCache:
    """What the doctor found, looked at again at most once a minute while somebody looks.

    No page waits for it: it takes seconds, and what is found comes with the next update.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._findings: Sequence[str] = ()
        self._began_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def get(self, view: "PageView") -> Sequence[str]:
        """What was found last; for a viewer who may ask the doctor."""
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and self._now() - self._began_s > FINDINGS_TTL_S:
            self._began_s = self._now()
            self._looking = asyncio.create_task(self._look(view))
        return self._findings

    async def _look(self, view: "PageView") -> None:
        with suppress(ApiError, NotFoundError):
            self._findings = (await view.client.doctor()).findings


@dataclass(frozen=True, slots=True)
class PageView:
    """One look at a page.

    Attributes:
        client: Of the API, as the viewer.
        query: Of the page's address.
        parts: What the page's path names, by parameter.
        queues: What insights answered a moment ago.
        findings: What the doctor found a moment ago.
    """

    session: Session
    client: Client
    query: MultiMapping[str]
    parts: dict[str, str]
    queues: QueueCache
    findings: FindingsCache

    @property
    def caller(self) -> CallerView:
        """Who looks, as the API knows it."""
        return self.session.caller

    @property
    def is_operator(self) -> bool:
        """Whether it speaks for every customer."""
        return self.caller.customer_id is None

    def may(self, role: Role) -> bool:
        """Whether the API would let it do what needs this role."""
        return role in self.caller.roles

    @property
    def now(self) -> datetime:
        """The present instant."""
        return _CLOCK.now()
