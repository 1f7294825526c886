"""Submissions whose id is known: what was accepted under it, lately here or ever in Postgres.

While Postgres is away nobody waits for it: what this process accepted lately is still
recognised, and a repeat of anything else is dropped where the agenda arrives. While Postgres
is slow a caller waits for it, as it may have lost the answer to the same submission in a
crash. After a wait in vain one question at a time is asked, and whoever asks it waits for a
moment only.

What was accepted lately and is not known to Postgres has not arrived there yet, or was
removed; in the second case its id may be used anew. If it is not known which of the two it is,
the submission is published: a repeat is dropped later, while an agenda that is mistaken for a
repeat is lost.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import structlog

from pop_stream.api.http.answers import DEPENDENCY_TIMEOUT_S, with_timeout
from pop_stream.api.http.errors import IdConflictError
from pop_stream.model.errors import Issue, UnavailableError
from pop_stream.policy.ingress.admission import Submission, differences
from pop_stream.ports.clock import Clock
from pop_stream.ports.summaries import AcceptedBody, SummaryReader

_MAX_BYTES: Final = 32 * 1024 * 1024
"""Of agendas accepted of late: what is younger than Postgres is in here."""

_ENTRY_BYTES: Final = 300
"""About what remembering one takes besides its body, which is often less than that."""

_SKEW: Final = timedelta(minutes=1)
"""How far the clock of ingest, which dates what it accepts, may be behind this one."""

_LOOKUP_TIMEOUT_S: Final = DEPENDENCY_TIMEOUT_S
_PROBE_TIMEOUT_S: Final = 0.5
_RETRY_AFTER_S: Final = 2.0

_T = TypeVar("_T")

_log = structlog.get_logger()


class _RecentSubmission(NamedTuple):
    body: AcceptedBody
    at: datetime


class SubmissionDeduplicator:
    """Recognises submissions that were accepted before."""

    def __init__(self, summaries: SummaryReader, clock: Clock) -> None:
        self._summaries = summaries
        self._clock = clock
        self._recent: OrderedDict[str, _RecentSubmission] = OrderedDict()
        self._recent_bytes = 0
        self._is_store_unavailable = False
        self._retry_at_s = 0.0
        self._probe: asyncio.Task[Mapping[str, AcceptedBody] | None] | None = None

    async def look_up(self, submissions: Sequence[Submission]) -> "AcceptedSubmissions":
        """What was accepted under the ids that the submissions brought along."""
        ids = [one.agenda_id for one in submissions if one.is_named]
        stored = await self._stored(ids) if ids else None
        if stored is not None:
            await self._drop_freed([one for one in ids if one not in stored])
        recent = {one: self._recent[one].body for one in ids if one in self._recent}
        return AcceptedSubmissions({**recent, **(stored or {})})

    def remember(self, submissions: Iterable[Submission]) -> None:
        """Note what Kafka has acknowledged just now."""
        for one in submissions:
            if one.is_named and one.agenda_id not in self._recent:
                body = AcceptedBody(one.customer_id, one.value)
                self._recent[one.agenda_id] = _RecentSubmission(body, self._clock.now())
                self._recent_bytes += len(one.value) + _ENTRY_BYTES
        while self._recent_bytes > _MAX_BYTES:
            self._forget(next(iter(self._recent)))

    async def _drop_freed(self, unstored: Sequence[str]) -> None:
        """Forget those of these that were refused, or whose summaries may have been removed."""
        recent = [one for one in unstored if one in self._recent]
        reusable_ids = (
            await self._query(self._summaries.reusable_ids(recent)) if recent else None
        )
        if reusable_ids is None:
            return
        until = reusable_ids.deleted_until
        for one in recent:
            known = self._recent.get(one)  # who asked at the same time may have forgotten it
            is_removed = known and until is not None and known.at - _SKEW <= until
            if one in reusable_ids.refused or is_removed:
                self._forget(one)

    def _forget(self, agenda_id: str) -> None:
        dropped = self._recent.pop(agenda_id, None)
        self._recent_bytes -= len(dropped.body.body) + _ENTRY_BYTES if dropped else 0

    async def _stored(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody] | None:
        """What Postgres knows; None if it does not answer."""
        if not self._is_store_unavailable:
            return await self._query(self._summaries.accepted_bodies(agenda_ids))
        if self._probe is not None or _now() < self._retry_at_s:
            return None
        probe = self._probe = asyncio.create_task(
            self._query(self._summaries.accepted_bodies(agenda_ids))
        )
        probe.add_done_callback(self._end_probe)
        seen, _ = await asyncio.wait({probe}, timeout=_PROBE_TIMEOUT_S)
        return probe.result() if seen else None

    async def _query(self, asked: Awaitable[_T]) -> _T | None:
        try:
            found = await with_timeout(asked, within_s=_LOOKUP_TIMEOUT_S)
        except UnavailableError as error:
            self._is_store_unavailable, self._retry_at_s = True, _now() + _RETRY_AFTER_S
            _log.warning("deduplication.unavailable", reason=str(error))
            return None
        self._is_store_unavailable = False
        return found

    def _end_probe(self, _: object) -> None:
        self._probe = None


def _now() -> float:
    return asyncio.get_running_loop().time()


class AcceptedSubmissions:
    """What was accepted under some ids."""

    def __init__(self, bodies: dict[str, AcceptedBody]) -> None:
        self._bodies = bodies

    def is_repeat(self, submission: Submission) -> bool:
        """Whether the very same was accepted before.

        Raises:
            IdConflictError: If something else was.
        """
        known = self._bodies.get(submission.agenda_id) if submission.is_named else None
        if known is None:
            return False
        if known.customer_id != submission.customer_id:
            message = "is taken; choose another, or leave it out to get one that is not"
            raise IdConflictError([Issue("id", submission.visible_id, message)])
        if differing := differences(known.body, submission.value):
            raise IdConflictError(differing)
        return True
