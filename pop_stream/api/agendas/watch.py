"""One look at the database for all who watch: who is woken, and what they see.

A hub asks, once a tick and only while somebody watches, for the versions of all that is
watched, and reads anew what has changed. A watcher always sees the newest snapshot and never
a queue of them, so a slow one costs no memory and misses only what is outdated anyway.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from pop_stream.api.http.patience import with_timeout
from pop_stream.core.errors import UnavailableError

_READS_AT_ONCE: Final = 4

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """What there was to see of a subject.

    Attributes:
        version: Not newer than the content, so a change between the two is seen again.
        content: JSON.
        is_final: Whether it can never change again.
    """

    version: int
    content: bytes
    is_final: bool


class WatchSource(Protocol):
    """Where a hub looks; both methods raise UnavailableError while the database is away."""

    async def versions(self, subject_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per subject that differs after every change; absent for unknown ones."""
        ...

    async def read(self, subject_id: str, version: int) -> WatchSnapshot | None:
        """The present content, under a version asked for before; None if it is gone."""
        ...


class _WatchedSubject:
    """What is watched, by whom, and what was last seen of it.

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
        """The newest; None until the subject is heard of."""
        return self._subject.snapshot

    @property
    def was_read(self) -> bool:
        """Whether it is known if the subject exists."""
        return self._subject.was_read

    def is_over(self) -> bool:
        """Whether the client has left or the hub is closed."""
        return self._hub.is_closed or self.is_disconnected()

    def wake(self) -> None:
        """Let the watcher look again."""
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
    """Looks on behalf of all watchers of one kind of subject.

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
        """Watch a subject until the context is left; the last to leave ends the looking.

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
        """Look until cancelled: for a newcomer at once, for all every tick."""
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due if self._subjects else None):
                    await self._arrived.wait()
            due_ids = [*self._unread]
            # Asked of the clock, so that a stream of newcomers cannot put off the tick.
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
            _log.warning("watch.blind", reason=str(error))
        self._unavailable = error
        for subject in self._subjects.values():
            if subject.snapshot is None:
                subject.wake()

    def _wake_disconnected(self) -> None:
        for subject in self._subjects.values():
            for watch in subject.watches:
                if watch.is_disconnected():
                    watch.wake()
