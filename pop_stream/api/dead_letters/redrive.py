"""What redriving does to each kind of dead letter."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import structlog

from pop_stream.api.http.answers import with_timeout
from pop_stream.api.http.errors import IdConflictError, TooLargeError
from pop_stream.api.submissions.submissions import SubmissionEndpoints
from pop_stream.api.submissions.validator import SubmissionValidator
from pop_stream.api_models.dead_letters import LetterOutcome
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import (
    ForbiddenError,
    SubmissionError,
    UnreadableRecordError,
)
from pop_stream.model.identity import Principal, Role
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN
from pop_stream.policy.ingress.admission import Submission
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.dead_letters import DeadLetter, submissions_of
from pop_stream.policy.lifecycle.rerun import restart_event
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.clock import Clock
from pop_stream.ports.dead_letters import DeadLetterStore, StoredLetter
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.summaries import SummaryReader
from pop_stream.settings import Settings

_ID: Final = re.compile(ID_PATTERN)
_SHOWN: Final = 3
_MAX_DETAIL: Final = 1_000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of a try to redrive.

    Attributes:
        settles: Whether the letter is to be settled; of `done` and `already`.
        detail: In words; empty if it was done.
    """

    outcome: LetterOutcome
    detail: str = ""

    @property
    def settles(self) -> bool:
        """Whether nothing is left to be done about the letter."""
        return self.outcome in {"done", "already"}


_DONE: Final = Redriven("done")


def why_not(stored: StoredLetter) -> str:
    """Why a letter cannot be redriven, as far as the letter itself says; empty if it can."""
    letter = stored.letter
    if letter.kind == "unreadable":
        return (
            "no part can read this record, so it would come back; have its writer send a sound "
            "one, then discard this"
        )
    if letter.kind == "refused" and letter.truncated:
        return "its value was too long to be kept whole; submit it again from its source"
    return ""


class Redriver:
    """Tries once more what a letter is about."""

    def __init__(  # noqa: PLR0913  # every port that one kind or another needs
        self,
        *,
        store: DeadLetterStore,
        summaries: SummaryReader,
        validator: SubmissionValidator,
        submissions: SubmissionEndpoints,
        publisher: Publisher,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._store = store
        self._summaries = summaries
        self._validator = validator
        self._submissions = submissions
        self._publisher = publisher
        self._clock = clock
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._signer = RecordSigner(settings.signing_keys)

    async def redrive(self, stored: StoredLetter, caller: Principal, reason: str) -> Redriven:
        """Redrive a letter that was read whole, and settle it if that leaves nothing to do.

        A letter that is not open is `already` settled. A second redrive at the same time does
        no more than one.

        Raises:
            UnavailableError: If Kafka or the database do not answer; the letter is still open.
        """
        if stored.state != "open":
            by = f"{stored.settled_by} at {stored.settled_at:%Y-%m-%d %H:%M:%S} UTC"
            return Redriven("already", f"{stored.state} by {by}")
        if obstacle := why_not(stored):
            return Redriven("not_possible", obstacle)
        letter = stored.letter
        match letter.kind:
            case "refused":
                redriven = await self._resubmit(letter, caller)
            case "exhausted":
                redriven = await self._rerun(letter, caller, reason)
            case "webhook" | "unreadable":
                redriven = _DONE  # settling makes a webhook due
            case _:
                assert_never(letter.kind)
        if redriven.settles:
            was_open = await with_timeout(
                self._store.settle(letter, "redriven", by=caller.name, reason=reason)
            )
            if not was_open:
                return Redriven("already", "it was settled at the same time")
            _log.info("dead_letter.redriven", id=letter.letter_id, kind=letter.kind)
        return redriven

    # ---- exhausted ----

    async def _rerun(self, letter: DeadLetter, caller: Principal, reason: str) -> Redriven:
        agenda_id = letter.agenda_id or ""
        summary = await with_timeout(self._summaries.agenda(agenda_id))
        if summary is None:
            return Redriven("not_possible", "its agenda was removed; submit it again")
        if summary.state is not State.FAILED:
            return Redriven("already", f"its agenda is {summary.state.value} by now")
        if not summary.body:
            return Redriven("not_possible", "what was accepted is not known any more")
        event = restart_event(
            summary,
            parse_agenda(summary.body, is_accepted=True),
            again="failed",
            hold=False,
            by=caller.name,
            reason=reason,
            now=self._clock.now(),
        )
        records = await lifecycle_records(
            self._publisher, self._topic, [event], signer=self._signer
        )
        await self._publisher.publish(records)
        return _DONE

    # ---- refused ----

    async def _resubmit(self, letter: DeadLetter, caller: Principal) -> Redriven:
        """Submit what was refused, each agenda under the id that it had or would have had."""
        # In the name of who sent it: its ids are in that one's name space.
        sender = Principal(caller.name, letter.sender_id, caller.roles | {Role.SUBMIT})
        try:
            bodies = submissions_of(letter.value)
        except UnreadableRecordError as error:
            return Redriven("not_possible", str(error))
        sound: list[Submission] = []
        refused: list[str] = []
        for index, body in enumerate(bodies):
            try:
                one = self._validated(letter, index, (body, sender))
                _expect_own(one, caller)
                sound.append(one)
            except (SubmissionError, ForbiddenError, TooLargeError) as error:
                refused.append(str(error))
        sent = await self._submit(sound, refused)
        if refused:
            which = f"{len(refused)} of {len(bodies)}: " if len(bodies) > 1 else ""
            detail = which + "; ".join(refused[:_SHOWN])
            return Redriven("refused", detail[:_MAX_DETAIL])
        return _DONE if sent else Redriven("already", "it was accepted meanwhile")

    def _validated(
        self, letter: DeadLetter, index: int, sent: tuple[bytes, Principal]
    ) -> Submission:
        """A sound agenda of the record, with the id by which a repeat is recognised."""
        body, sender = sent
        suggested = _id_of_key(letter, index) or f"{letter.partition}-{letter.offset}-{index}"
        return self._validator.validate(body, sender, suggested_id=suggested)

    async def _submit(self, sound: Sequence[Submission], refused: list[str]) -> int:
        """Publish what was not accepted before; how many. What fails is added to refused."""
        known = await self._submissions.known(sound)
        fresh: list[Submission] = []
        for one in sound:
            try:
                if known.is_repeat(one):
                    continue
                self._submissions.admit(one)
            except (IdConflictError, SubmissionError) as error:
                refused.append(str(error))
            else:
                fresh.append(one)
        if fresh:
            await self._submissions.publish(fresh)
        return len(fresh)


def _expect_own(submission: Submission, caller: Principal) -> None:
    """Check that what a template makes of it now is still the caller's.

    Raises:
        ForbiddenError: If it is not.
    """
    if not caller.speaks_for(submission.customer_id):
        msg = "it would be another customer's agenda by now; an operator may redrive it"
        raise ForbiddenError(msg)


def _id_of_key(letter: DeadLetter, index: int) -> str | None:
    """The id that the record's key gave its first agenda, as ingest reads it."""
    if index or not letter.key:
        return None
    try:
        key = letter.key.decode()
    except UnicodeDecodeError:
        return None
    return key if len(key) <= ID_LENGTH and _ID.match(key) else None
