"""Server-sent events of agendas and links: a snapshot at once, and one after every change.

One hub looks at the database for all streams of the process. Once a tick, and only while
somebody watches, it asks for the versions of all that is watched and reads what has changed. A
stream sees the newest snapshot and never a queue of them, so a slow reader costs no memory and
misses only what is outdated anyway.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Protocol

import structlog
from aiohttp import web

from pop_stream.api.agendas.reads import Kind, found
from pop_stream.api.agendas.views import link_view, progress_view
from pop_stream.api.http.access import expect_still_authenticated, object_of, principal_of
from pop_stream.api.http.answers import encode, with_timeout
from pop_stream.api.http.errors import BusyError
from pop_stream.api.http.route import EVENT_STREAM
from pop_stream.api.http.server import Metrics
from pop_stream.background import background
from pop_stream.model.errors import RateLimitError, UnauthenticatedError, UnavailableError
from pop_stream.ports.summaries import LinkScope, SummaryReader

_READS_AT_ONCE: Final = 4

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """A subject as it was last read.

    Attributes:
        version: Not newer than the content, so a change between the two is seen again.
        content: JSON.
        is_final: Whether it can never change again.
    """

    version: int
    content: bytes
    is_final: bool


class WatchSource(Protocol):
    """What a hub reads from; both methods raise UnavailableError while the database is away."""

    async def versions(self, subject_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per subject that differs after every change; absent for unknown ones."""
        ...

    async def read(self, subject_id: str, version: int) -> WatchSnapshot | None:
        """The present content, under a version asked for before; None if it is gone."""
        ...


class _WatchedSubject:
    """A subject with its watches and its newest snapshot.

    Attributes:
        was_read: Whether a look for it was answered, be it with nothing.
    """

    def __init__(self) -> None:
        self.snapshot: WatchSnapshot | None = None
        self.was_read = False
        self.watches: set[Watch] = set()

    def publish(self, snapshot: WatchSnapshot) -> None:
        self.snapshot = snapshot
        self.wake()

    def wake(self) -> None:
        for watch in self.watches:
            watch.wake()


class Watch:
    """One client's view of a subject; made by `WatchHub.watch`."""

    def __init__(
        self, hub: "WatchHub", subject: _WatchedSubject, is_disconnected: Callable[[], bool]
    ) -> None:
        self._hub = hub
        self._woken = asyncio.Event()
        self._subject = subject
        self.is_disconnected = is_disconnected

    @property
    def snapshot(self) -> WatchSnapshot | None:
        """The newest; None until the subject appears."""
        return self._subject.snapshot

    @property
    def was_read(self) -> bool:
        """Whether it is known if the subject exists."""
        return self._subject.was_read

    def is_over(self) -> bool:
        """Whether the client has left or the hub is closed."""
        return self._hub.is_closed or self.is_disconnected()

    def wake(self) -> None:
        """Wake the watcher, which reads the snapshot again."""
        self._woken.set()

    async def wait(self, within_s: float) -> bool:
        """Wait for a change; whether there may be one, before the time was over."""
        try:
            async with asyncio.timeout(within_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class WatchHub:
    """Reads subjects of one kind for all who watch them.

    Args:
        source: Where to look.
        tick: Between two looks.
    """

    def __init__(self, source: WatchSource, *, tick: timedelta) -> None:
        self._source = source
        self._tick_s = tick.total_seconds()
        self._subjects: dict[str, _WatchedSubject] = {}
        self._unread: set[str] = set()
        self._arrived = asyncio.Event()
        self._unavailable: UnavailableError | None = None
        self.watchers = 0
        self.is_closed = False

    @contextmanager
    def watch(self, subject_id: str, is_disconnected: Callable[[], bool]) -> Iterator[Watch]:
        """Watch a subject until the context is left; without a watch it is not read any more.

        Args:
            subject_id: Of an agenda or a link.
            is_disconnected: Whether the client has left; asked once a tick.
        """
        subject = self._subjects.get(subject_id)
        if subject is None:
            subject = self._subjects[subject_id] = _WatchedSubject()
            self._unread.add(subject_id)
            self._arrived.set()
        watch = Watch(self, subject, is_disconnected)
        subject.watches.add(watch)
        self.watchers += 1
        try:
            yield watch
        finally:
            self.watchers -= 1
            subject.watches.discard(watch)
            if not subject.watches:
                del self._subjects[subject_id]

    async def first(self, watch: Watch, *, within_s: float) -> WatchSnapshot | None:
        """What a new watcher sees first; None if the subject does not appear in time.

        Raises:
            UnavailableError: If the database is away.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while watch.snapshot is None and not watch.is_over():
                    await watch.wait(within_s)
                    if watch.snapshot is None and self._unavailable is not None:
                        raise self._unavailable
        if watch.snapshot is None and (self.is_closed or not watch.was_read):
            msg = "the API is stopping" if self.is_closed else "the look takes too long"
            raise UnavailableError(msg)
        return watch.snapshot

    async def run(self) -> None:
        """Read until cancelled: for a new watch at once, for all watches every tick."""
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due if self._subjects else None):
                    await self._arrived.wait()
            due_ids = [*self._unread]
            # Asked of the clock, so that a stream of new watches cannot put off the tick.
            if now() >= due:
                self._wake_disconnected()
                due_ids = [*self._subjects]
                due = now() + self._tick_s
            self._unread.clear()
            self._arrived.clear()
            if due_ids:
                await self._refresh_safely(due_ids)

    def close(self) -> None:
        """Wake all watchers, who then find that it is over."""
        self.is_closed = True
        for subject in self._subjects.values():
            subject.wake()

    async def _refresh_safely(self, subject_ids: Sequence[str]) -> None:
        try:
            await self._refresh_all(subject_ids)
        except UnavailableError as error:
            self._mark_unavailable(error)
        except Exception as error:
            # Streams that stand still for ever would be worse than one look lost.
            _log.exception("watch.failed")
            self._mark_unavailable(UnavailableError(repr(error)))

    async def _refresh_all(self, subject_ids: Sequence[str]) -> None:
        versions = await with_timeout(self._source.versions(subject_ids))
        self._unavailable = None
        for subject_id in subject_ids:
            if subject := self._subjects.get(subject_id):
                subject.was_read = True
        changed = [one for one in versions.items() if self._differs(*one)]
        for start in range(0, len(changed), _READS_AT_ONCE):
            some = changed[start : start + _READS_AT_ONCE]
            await asyncio.gather(*(self._refresh(*one) for one in some))

    def _differs(self, subject_id: str, version: int) -> bool:
        subject = self._subjects.get(subject_id)
        if subject is None:
            return False
        return subject.snapshot is None or subject.snapshot.version != version

    async def _refresh(self, subject_id: str, version: int) -> None:
        snapshot = await with_timeout(self._source.read(subject_id, version))
        subject = self._subjects.get(subject_id)
        if snapshot is not None and subject is not None:
            subject.publish(snapshot)

    def _mark_unavailable(self, error: UnavailableError) -> None:
        if self._unavailable is None:
            _log.warning("watch.unavailable", reason=str(error))
        self._unavailable = error
        for subject in self._subjects.values():
            if subject.snapshot is None:
                subject.wake()

    def _wake_disconnected(self) -> None:
        for subject in self._subjects.values():
            for watch in subject.watches:
                if watch.is_disconnected():
                    watch.wake()


_MAX_STREAMS: Final = 10_000
_STREAMS_RETRY_AFTER_S: Final = 10
_SEPARATOR: Final = "/"  # in no id

_HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """The times of event streams.

    Attributes:
        tick: Between two looks for changes, all clients together.
        heartbeat: A comment is sent after so long a silence.
        appears_within: How long an unknown id is waited for before 404.
        slow_after: A client that takes nothing for so long is dropped.
    """

    tick: timedelta = timedelta(milliseconds=250)
    heartbeat: timedelta = timedelta(seconds=15)
    appears_within: timedelta = timedelta(seconds=3)
    slow_after: timedelta = timedelta(seconds=10)


class AgendaSource:
    """Agendas as a hub's source: their progress, final once they have ended."""

    def __init__(self, summaries: SummaryReader) -> None:
        self._summaries = summaries

    async def versions(self, subject_ids: Sequence[str]) -> Mapping[str, int]:
        """Versions of the agendas."""
        agenda_ids = {one: _subject_of(one)[0] for one in subject_ids}
        found = await self._summaries.agenda_versions([*dict.fromkeys(agenda_ids.values())])
        return {one: found[known] for one, known in agenda_ids.items() if known in found}

    async def read(self, subject_id: str, version: int) -> WatchSnapshot | None:
        """The agenda's progress."""
        agenda_id, seen_by = _subject_of(subject_id)
        summary = await self._summaries.agenda(agenda_id)
        if summary is None:
            return None
        content = encode(progress_view(summary, seen_by=seen_by))
        return WatchSnapshot(version, content, is_final=summary.state.is_terminal)


class LinkSource:
    """Links as a hub's source: never final, as agendas may join at any time."""

    def __init__(self, summaries: SummaryReader) -> None:
        self._summaries = summaries

    async def versions(self, subject_ids: Sequence[str]) -> Mapping[str, int]:
        """Versions of the links."""
        parts = {LinkScope(*_subject_of(one)): one for one in subject_ids}
        found = await self._summaries.link_versions([*parts])
        return {parts[part]: version for part, version in found.items()}

    async def read(self, subject_id: str, version: int) -> WatchSnapshot | None:
        """The link's roll-up."""
        link = await self._summaries.link(LinkScope(*_subject_of(subject_id)))
        if link is None:
            return None
        return WatchSnapshot(version, encode(link_view(link)), is_final=False)


class StreamEndpoints:
    """The handlers of event streams, and the hubs all streams of the process share."""

    def __init__(
        self,
        summaries: SummaryReader,
        metrics: Metrics,
        timing: StreamTiming,
        *,
        max_streams: int,
    ) -> None:
        self._max_streams = max_streams
        self._open: Counter[str] = Counter()
        self._agendas = WatchHub(AgendaSource(summaries), tick=timing.tick)
        self._links = WatchHub(LinkSource(summaries), tick=timing.tick)
        self._metrics = metrics
        self._timing = timing

    @property
    def appears_within(self) -> timedelta:
        """How long an unknown id is waited for."""
        return self._timing.appears_within

    @property
    def watchers(self) -> int:
        """How many clients watch now."""
        return self._agendas.watchers + self._links.watchers

    async def get_agenda_events(self, request: web.Request) -> web.StreamResponse:
        """The agenda's progress, until it has ended."""
        return await self._serve(request, self._agendas, "agenda")

    async def get_link_events(self, request: web.Request) -> web.StreamResponse:
        """The link's roll-up, until the client leaves."""
        return await self._serve(request, self._links, "link")

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Run the hubs for as long as the application runs; a cleanup context of aiohttp."""
        async with background(
            agenda_streams=self._agendas.run(), link_streams=self._links.run()
        ):
            yield

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        self._agendas.close()
        self._links.close()

    @contextmanager
    def _counted(self, customer_id: str | None) -> Iterator[None]:
        """Count a stream of a customer for as long as it is open."""
        if customer_id is None:
            yield
            return
        if self._open[customer_id] >= self._max_streams:
            raise RateLimitError(
                customer_id,
                "event streams open",
                self._max_streams,
                "POP_MAX_STREAMS",
                retry_after_s=_STREAMS_RETRY_AFTER_S,
            )
        self._open[customer_id] += 1
        try:
            yield
        finally:
            self._open[customer_id] -= 1
            if not self._open[customer_id]:
                del self._open[customer_id]

    async def _serve(
        self, request: web.Request, hub: WatchHub, kind: Kind
    ) -> web.StreamResponse:
        subject_id = _subject(object_of(request), request)
        if self.watchers >= _MAX_STREAMS:
            msg = f"{_MAX_STREAMS:,} event streams are open; poll, or try again later"
            raise BusyError(msg)
        with (
            self._counted(principal_of(request).customer_id),
            hub.watch(subject_id, lambda: _is_disconnected(request)) as watch,
        ):
            within_s = self._timing.appears_within.total_seconds()
            named = request.match_info[f"{kind}_id"]
            first = found(await hub.first(watch, within_s=within_s), kind, named)
            if first.is_final and request.headers.get("Last-Event-ID") == str(first.version):
                # 204 says that it is over; a browser reconnects after any other end.
                return web.Response(status=HTTPStatus.NO_CONTENT)
            event = "progress" if kind == "agenda" else "summary"
            stream = _EventStream(request, event, self._timing)
            with self._metrics.streams.track_inprogress():
                return await stream.follow(watch)


class _EventStream:
    """One client's stream."""

    def __init__(self, request: web.Request, event: str, timing: StreamTiming) -> None:
        self._request = request
        self._event = event.encode()
        self._heartbeat_s = timing.heartbeat.total_seconds()
        self._slow_after_s = timing.slow_after.total_seconds()
        self._response = web.StreamResponse(headers=_HEADERS)

    async def follow(self, watch: Watch) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._slow_after_s):
                await self._response.prepare(self._request)
            await self._send_all(watch)
        except ConnectionError:
            pass  # the client left, as clients do
        except UnauthenticatedError as error:
            _log.info("stream.ended", path=self._request.path, reason=str(error))
        except TimeoutError:
            _log.info("stream.dropped", path=self._request.path)
            if self._request.transport is not None:
                self._request.transport.abort()
        return self._response

    async def _send_all(self, watch: Watch) -> None:
        seen: int | None = None
        while not watch.is_over():
            snapshot = watch.snapshot
            if snapshot is not None and snapshot.version != seen:
                await self._send(self._framed(snapshot))
                seen = snapshot.version
                if snapshot.is_final:
                    return
            elif not await watch.wait(self._heartbeat_s):
                await self._send(b":\n\n")

    async def _send(self, data: bytes) -> None:
        await expect_still_authenticated(self._request)
        async with asyncio.timeout(self._slow_after_s):
            await self._response.write(data)

    def _framed(self, snapshot: WatchSnapshot) -> bytes:
        # JSON allows line breaks between tokens only, where a blank does as well.
        line = snapshot.content.replace(b"\n", b" ").replace(b"\r", b" ")
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (snapshot.version, self._event, line)


def _subject(object_id: str, request: web.Request) -> str:
    """The id of the subject; callers who see the same of an object share one subject."""
    customer_id = principal_of(request).customer_id
    return object_id if customer_id is None else f"{object_id}{_SEPARATOR}{customer_id}"


def _subject_of(subject_id: str) -> tuple[str, str | None]:
    """The object, and the customer that looks at it, if it is not an operator."""
    object_id, _, customer_id = subject_id.partition(_SEPARATOR)
    return object_id, customer_id or None


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
