"""One look at the database for all who watch: who is woken, and what they see.

A hub asks, once a tick and only while somebody watches, for the versions of all that is
watched, and reads anew what has changed. A watcher always sees the newest snapshot and never
a queue of them, so a slow one costs no memory and misses only what is outdated anyway.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from pop_stream.api.patience import answer_in_time
from pop_stream.core.errors import UnavailableError

_READS_AT_ONCE: Final = 4

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there was to see of a subject.

    Attributes:
        version: Not newer than the content, so a change between the two is seen again.
        content: JSON.
        is_final: Whether it can never change again.
    """

    version: int
    content: bytes
    is_final: bool


class Source(Protocol):
    """Where a hub looks; both methods raise UnavailableError while the database is away."""

    async def versions(self, subject_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per subject that differs after every change; absent for unknown ones."""
        ...

    async def read(self, subject_id: str, version: int) -> Snapshot | None:
        """The present content, under a version asked for before; None if it is gone."""
        ...


class _Subject:
    """What is watched, by whom, and what was last seen of it."""

    def __init__(self, subject_id: str) -> None:
        self.subject_id = subject_id
        self.snapshot: Snapshot | None = None
        self.watches: set[Watch] = set()

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        for watch in self.watches:
            watch.wake()


class Watch:
    """One client's view of a subject; made by `WatchHub.watch`."""

    def __init__(self, hub: "WatchHub", subject: _Subject, is_gone: Callable[[], bool]) -> None:
        self._hub = hub
        self._woken = asyncio.Event()
        self.subject = subject
        self.is_gone = is_gone

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest; None until the subject is heard of."""
        return self.subject.snapshot

    def is_over(self) -> bool:
        """Whether the client has left or the hub is closed."""
        return self._hub.is_closed or self.is_gone()

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

    def __init__(self, source: Source, *, tick: timedelta) -> None:
        self._source = source
        self._tick_s = tick.total_seconds()
        self._subjects: dict[str, _Subject] = {}
        self._watched = asyncio.Event()
        self._away: UnavailableError | None = None
        self.watchers = 0
        self.is_closed = False

    @contextmanager
    def watch(self, subject_id: str, is_gone: Callable[[], bool]) -> Iterator[Watch]:
        """Watch a subject until the context is left; the last to leave ends the looking.

        Args:
            subject_id: Of an agenda or a link.
            is_gone: Whether the client has left; asked once a tick.
        """
        subject = self._subjects.setdefault(subject_id, _Subject(subject_id))
        watch = Watch(self, subject, is_gone)
        subject.watches.add(watch)
        self.watchers += 1
        self._watched.set()
        try:
            yield watch
        finally:
            self.watchers -= 1
            subject.watches.discard(watch)
            if not subject.watches:
                del self._subjects[subject_id]
            if not self._subjects:
                self._watched.clear()

    async def first(self, watch: Watch, *, within_s: float) -> Snapshot | None:
        """What a new watcher sees first; None if the subject does not appear in time.

        Raises:
            UnavailableError: If the database is away.
        """
        if watch.snapshot is None and len(watch.subject.watches) == 1:
            # The others of a rush wait for the first one's look.
            await self._look([watch.subject.subject_id])
        try:
            async with asyncio.timeout(within_s):
                while watch.snapshot is None and not watch.is_over():
                    await watch.wait(within_s)
        except TimeoutError:
            if self._away is not None:
                raise self._away from None
        if watch.snapshot is None and self.is_closed:
            msg = "the API is stopping"
            raise UnavailableError(msg)
        return watch.snapshot

    async def run(self) -> None:
        """Look, every tick and while somebody watches, until cancelled."""
        while True:
            await self._watched.wait()
            self._wake_the_gone()
            try:
                await self._look([*self._subjects])
            except UnavailableError as error:
                if self._away is None:
                    _log.warning("watch.blind", reason=str(error))
                self._away = error
            except Exception:
                # Streams that stand still for ever would be worse than one look lost.
                _log.exception("watch.failed")
            await asyncio.sleep(self._tick_s)

    def close(self) -> None:
        """Wake all watchers, who then find that it is over."""
        self.is_closed = True
        for subject in self._subjects.values():
            for watch in subject.watches:
                watch.wake()

    async def _look(self, subject_ids: Sequence[str]) -> None:
        versions = await answer_in_time(self._source.versions(subject_ids))
        self._away = None
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
        snapshot = await answer_in_time(self._source.read(subject_id, version))
        subject = self._subjects.get(subject_id)
        if snapshot is not None and subject is not None:
            subject.show(snapshot)

    def _wake_the_gone(self) -> None:
        for subject in self._subjects.values():
            for watch in subject.watches:
                if watch.is_gone():
                    watch.wake()
