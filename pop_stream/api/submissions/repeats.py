"""Submissions whose id is known: what was accepted under it, of late here or ever in Postgres.

While Postgres is away nobody waits for it: what this process accepted of late is still
recognised, and of anything else a repeat is dropped where the agenda arrives. One that is slow
is waited for: who asks may have lost the answer to the same in a crash, when all is slow. Once
it was waited for in vain there is one question at a time, and who asks it waits a moment only.

What came of late and Postgres does not know has not arrived there, or was removed; its id may
be used anew then. If that cannot be told apart it is published: a repeat is dropped later, and
what is taken for one by mistake is lost.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import structlog

from pop_stream.api.http.errors import IdTakenError
from pop_stream.api.http.patience import PATIENCE_S, answer_in_time
from pop_stream.api.submissions.judge import Submission
from pop_stream.core.doors.repeats import differences
from pop_stream.core.errors import Issue, UnavailableError
from pop_stream.ports.clock import Clock
from pop_stream.ports.summaries import AcceptedBody, SummaryReader

_MOST_BYTES: Final = 32 * 1024 * 1024
"""Of agendas accepted of late: what is younger than Postgres is in here."""

_ENTRY_BYTES: Final = 300
"""About what remembering one takes besides its body, which is often less than that."""

_SKEW: Final = timedelta(minutes=1)
"""How far the clock of intake, which dates what it accepts, may be behind this one."""

_WAITED_S: Final = PATIENCE_S
_GLANCE_S: Final = 0.5
_REST_S: Final = 2.0

_T = TypeVar("_T")

_log = structlog.get_logger()


class _Late(NamedTuple):
    body: AcceptedBody
    at: datetime


class Repeats:
    """Tells new submissions from repeated ones."""

    def __init__(self, summaries: SummaryReader, clock: Clock) -> None:
        self._summaries = summaries
        self._clock = clock
        self._late: OrderedDict[str, _Late] = OrderedDict()
        self._held = 0
        self._is_blind = False
        self._rests_until = 0.0
        self._glance: asyncio.Task[Mapping[str, AcceptedBody] | None] | None = None

    async def look_up(self, submissions: Sequence[Submission]) -> "Known":
        """What was accepted under the ids that the submissions brought along."""
        ids = [one.agenda_id for one in submissions if one.is_named]
        stored = await self._stored(ids) if ids else None
        if stored is not None:
            await self._forget_what_is_gone([one for one in ids if one not in stored])
        late = {one: self._late[one].body for one in ids if one in self._late}
        return Known({**late, **(stored or {})})

    def remember(self, submissions: Iterable[Submission]) -> None:
        """Note what Kafka has acknowledged just now."""
        for one in submissions:
            if one.is_named and one.agenda_id not in self._late:
                body = AcceptedBody(one.customer_id, one.value)
                self._late[one.agenda_id] = _Late(body, self._clock.now())
                self._held += len(one.value) + _ENTRY_BYTES
        while self._held > _MOST_BYTES:
            self._forget(next(iter(self._late)))

    async def _forget_what_is_gone(self, unheard: Sequence[str]) -> None:
        """Leave nothing of these in memory that was refused or may have been removed."""
        late = [one for one in unheard if one in self._late]
        vacated = await self._answer(self._summaries.vacated(late)) if late else None
        if vacated is None:
            return
        until = vacated.removed_until
        for one in late:
            known = self._late.get(one)  # who asked at the same time may have forgotten it
            is_gone = known and until is not None and known.at - _SKEW <= until
            if one in vacated.refused or is_gone:
                self._forget(one)

    def _forget(self, agenda_id: str) -> None:
        gone = self._late.pop(agenda_id, None)
        self._held -= len(gone.body.body) + _ENTRY_BYTES if gone else 0

    async def _stored(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody] | None:
        """What Postgres knows; None if it does not answer."""
        if not self._is_blind:
            return await self._answer(self._summaries.accepted_bodies(agenda_ids))
        if self._glance is not None or _now() < self._rests_until:
            return None
        glance = self._glance = asyncio.create_task(
            self._answer(self._summaries.accepted_bodies(agenda_ids))
        )
        glance.add_done_callback(self._end_glance)
        seen, _ = await asyncio.wait({glance}, timeout=_GLANCE_S)
        return glance.result() if seen else None

    async def _answer(self, asked: Awaitable[_T]) -> _T | None:
        try:
            found = await answer_in_time(asked, within_s=_WAITED_S)
        except UnavailableError as error:
            self._is_blind, self._rests_until = True, _now() + _REST_S
            _log.warning("repeats.unknown", reason=str(error))
            return None
        self._is_blind = False
        return found

    def _end_glance(self, _: object) -> None:
        self._glance = None


def _now() -> float:
    return asyncio.get_running_loop().time()


class Known:
    """What was accepted under some ids."""

    def __init__(self, bodies: dict[str, AcceptedBody]) -> None:
        self._bodies = bodies

    def is_repeat(self, submission: Submission) -> bool:
        """Whether the very same was accepted before.

        Raises:
            IdTakenError: If something else was.
        """
        known = self._bodies.get(submission.agenda_id) if submission.is_named else None
        if known is None:
            return False
        if known.customer_id != submission.customer_id:
            message = "is taken; choose another, or leave it out to get one that is not"
            raise IdTakenError([Issue("id", submission.shown_id, message)])
        if differing := differences(known.body, submission.value):
            raise IdTakenError(differing)
        return True
