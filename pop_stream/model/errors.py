"""Every error of ours, as one tree.

PopStreamError              code: stable name for clients, logs and metrics
├─ IssuesError              refused, for reasons that are listed one by one
│  ├─ SubmissionError       resending cannot help
│  │  ├─ MissingDefinitionError  …but it may once an insight or a template is defined
│  │  │  └─ AdmissionDeniedError  …or enabled, or its customer given a label
│  │  ├─ AgendaTooLargeError  …nor can anything but a smaller agenda
│  │  ├─ QuotaError         …but it may later: the customer has, or sends, as much as it may
│  │  │  └─ InsightFullError   …the insight has
│  │  ├─ DuplicateError     …but it may once the one with the same key has ended
│  │  └─ CapacityError          …but it may later: the insight's scheduler has as much as it may
│  ├─ DefinitionError       resending cannot help
│  └─ QueryError            parameters of a list that cannot be used
├─ LimitError               the customer has as many of something as it may
│  └─ RateLimitError        …or did it as often as it may: later it may again
├─ ExistsError              an id is taken
├─ InUseError               it cannot be deleted while others need it
├─ PreconditionError        it is no longer, or not yet, what the caller believes
├─ NotFoundError            unknown agenda, insight, customer or link
├─ UnauthenticatedError     nobody knows who asks
├─ ForbiddenError           the caller's own object, but not its role
├─ StateError               an agenda's state forbids what is wanted of it
├─ KeyStateError            an API key has ended, or another stands in its place
├─ TransitionError          an event does not follow from the state
├─ LeaseLostError           the attempt is over: stop, report nothing
├─ CompletionError          a completion token completes nothing: the operation went another way
│  └─ CompletionLateError   …its time or its agenda is over
├─ UnreadableRecordError    bytes that are no event
├─ RecordTooLargeError      what no record can hold; nothing is gained by trying again
├─ OffsetsMovedError        another process owns the partition now: read it anew
├─ UnstorableError          an event of the batch holds what no row can
├─ MigrationError           the schema's files and the database disagree
└─ UnavailableError         broker or database away: trying again is right
   └─ UnservedError         a part lacks what it needs for this: an operator must mend that
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a submission.

    Attributes:
        field: Path of the field, as the submitter wrote it: `operations[2].depends_on[0]`.
        value: What was found there, shortened to 200 characters.
        message: What is wrong and what would be right.
    """

    field: str
    value: str
    message: str

    def __str__(self) -> str:
        """One line for a log or a terminal."""
        return f"{self.field} = {self.value}: {self.message}"


class PopStreamError(Exception):
    """The root; `code` never changes once published."""

    code: ClassVar[str] = "internal"


class IssuesError(PopStreamError):
    """Something was refused, for reasons that are listed one by one.

    Attributes:
        issues: At least one, at most `MAX_ISSUES`, in the order of the document.
    """

    MAX_ISSUES: ClassVar[int] = 10

    def __init__(self, issues: Sequence[Issue], *, about: str = "") -> None:
        super().__init__("; ".join(f"{about}{issue}" for issue in issues))
        self.issues = tuple(issues[: self.MAX_ISSUES])


class SubmissionError(IssuesError):
    """A submission was refused; resending it unchanged cannot help."""

    code: ClassVar[str] = "submission_refused"


class MissingDefinitionError(SubmissionError):
    """A sound submission was refused for want of a definition; resubmitting may help later."""


class AdmissionDeniedError(MissingDefinitionError):
    """A policy refused a sound submission; once definitions say otherwise it may pass."""

    code: ClassVar[str] = "admission_denied"


class AgendaTooLargeError(SubmissionError):
    """An agenda holds more bytes than one may.

    Attributes:
        size: Its bytes.
        limit: The most that one may hold.
    """

    def __init__(self, size: int, limit: int) -> None:
        message = f"larger than the {limit} bytes allowed; store large inputs and refer to them"
        super().__init__([Issue("agenda", f"{size} bytes", message)])
        self.size, self.limit = size, limit


class QuotaError(SubmissionError):
    """The customer has as much ready as it may, or submits faster than it may.

    Attributes:
        quota: Field of the customer's definition.
        limit: What it says.
        present: Ready agendas, those on their way included; with a rate, how many agendas of
            `submit_burst` are used up.
        retry_after_s: When trying again is worth it.
    """

    code: ClassVar[str] = "quota"

    def __init__(
        self,
        customer_id: str,
        quota: Literal["max_ready", "max_submit_per_s"],
        *,
        limit: float,
        present: float,
        retry_after_s: float,
    ) -> None:
        what = (
            f"has {present:g} ready agendas and may have {limit:g}"
            if quota == "max_ready"
            else f"may submit {limit:g} agendas per second"
        )
        why = f"customer {customer_id!r} {what}; send the rest later, or ask for more ({quota})"
        super().__init__([Issue("customer_id", customer_id, why)])
        self.customer_id, self.quota = customer_id, quota
        self.limit, self.present = limit, present
        self.retry_after_s = retry_after_s


class InsightFullError(QuotaError):
    """The insight has as much ready as it may, of all customers together.

    Attributes:
        insight_id: Which one.
    """

    code: ClassVar[str] = "insight_quota"

    def __init__(
        self, insight_id: str, *, limit: int, present: int, retry_after_s: float
    ) -> None:
        message = (
            f"it has {present:,} ready agendas and may have {limit:,} (max_ready); send it "
            "again once some were worked off"
        )
        SubmissionError.__init__(self, [Issue("insight_id", insight_id, message)])
        self.customer_id, self.quota = "", "max_ready"
        self.insight_id = insight_id
        self.limit, self.present = limit, present
        self.retry_after_s = retry_after_s


class DuplicateError(SubmissionError):
    """An agenda with the same deduplication key waits, runs, or has just run.

    Attributes:
        duplicate_of: Its id, as the submitter calls it.
        retry_after_s: When trying again is worth it.
    """

    code: ClassVar[str] = "duplicate"

    def __init__(self, duplicate_of: str, *, retry_after_s: float) -> None:
        message = (
            f"agenda {duplicate_of!r} has the same key and is not over; wait for it, or choose "
            "another on_duplicate than refuse"
        )
        super().__init__([Issue("dedupe", duplicate_of, message)])
        self.duplicate_of = duplicate_of
        self.retry_after_s = retry_after_s


class CapacityError(SubmissionError):
    """The scheduler of the insight has as much in memory as it may.

    Attributes:
        limit: Agendas or bytes, as the message says, of all insights of that scheduler.
        present: What it has.
    """

    code: ClassVar[str] = "insight_full"

    def __init__(self, insight_id: str, what: str, limit: int, present: int) -> None:
        message = (
            f"its scheduler has {present:,} {what} waiting and takes {limit:,}; send it again "
            "once some were worked off"
        )
        super().__init__([Issue("insight_id", insight_id, message)])
        self.insight_id = insight_id
        self.limit, self.present = limit, present


class DefinitionError(IssuesError):
    """A definition was refused; resending it unchanged cannot help.

    Attributes:
        kind: What was to be defined.
    """

    code: ClassVar[str] = "definition_refused"

    def __init__(self, kind: str, issues: Sequence[Issue]) -> None:
        super().__init__(issues, about=f"{kind}: ")
        self.kind = kind


class ExistsError(PopStreamError):
    """What was to be created exists already."""

    code: ClassVar[str] = "already_exists"

    def __init__(self, kind: str, object_id: str, version: int) -> None:
        super().__init__(
            f"{kind} {object_id!r} exists, in version {version}; PUT replaces it, PATCH "
            "changes fields of it"
        )


class LimitError(PopStreamError):
    """The customer has as many of something as it may."""

    code: ClassVar[str] = "limit_reached"

    def __init__(self, customer_id: str, what: str, limit: int, setting: str) -> None:
        super().__init__(
            f"customer {customer_id!r} has {limit:,} {what}, as many as it may; remove some, "
            f"or have an operator raise {setting}"
        )


class RateLimitError(LimitError):
    """The customer does something as often as it may.

    Attributes:
        retry_after_s: When trying again is worth it.
    """

    code: ClassVar[str] = "rate_limit_reached"

    def __init__(
        self, customer_id: str, what: str, limit: int, setting: str, *, retry_after_s: float
    ) -> None:
        super().__init__(customer_id, what, limit, setting)
        self.retry_after_s = retry_after_s


class InUseError(PopStreamError):
    """It cannot be deleted while others need it.

    Attributes:
        used_by: What needs it, such as `insight/media`; of many, some.
    """

    code: ClassVar[str] = "in_use"

    def __init__(self, key: str, used_by: Sequence[str]) -> None:
        super().__init__(f"{key} is in use by {', '.join(used_by)}; change these first")
        self.used_by = tuple(used_by)


class QueryError(IssuesError):
    """Parameters of a list cannot be used."""

    code: ClassVar[str] = "bad_query"


class PreconditionError(PopStreamError):
    """It is not what the caller believes; nothing was changed."""

    code: ClassVar[str] = "precondition_failed"


class NotFoundError(PopStreamError):
    """No such object, or none that the caller may see."""

    code: ClassVar[str] = "not_found"

    def __init__(self, kind: str, object_id: str) -> None:
        super().__init__(f"no {kind} with id {object_id!r}")
        self.kind = kind
        self.object_id = object_id


class UnauthenticatedError(PopStreamError):
    """The caller did not say who it is, or said it in a way that does not hold."""

    code: ClassVar[str] = "unauthenticated"


class ForbiddenError(PopStreamError):
    """The caller is known, and may not do this."""

    code: ClassVar[str] = "forbidden"


class StateError(PopStreamError):
    """An agenda's state forbids what is wanted of it.

    Args:
        agenda_id: Which agenda.
        state: Its state.
        action: What is wanted.
        wanted: The states that allow it, in words.
    """

    code: ClassVar[str] = "wrong_state"

    def __init__(self, agenda_id: str, state: str, action: str, wanted: str) -> None:
        super().__init__(
            f"agenda {agenda_id!r} is {state}; {action} needs one that is {wanted}"
        )


class KeyStateError(PopStreamError):
    """An API key has ended, or another stands in its place: no key follows from it."""

    code: ClassVar[str] = "wrong_key_state"


class TransitionError(PopStreamError):
    """An event does not follow from the state; it is counted and skipped."""

    code: ClassVar[str] = "transition"


class LeaseLostError(PopStreamError):
    """The attempt is over: stop, and report nothing more.

    Args:
        agenda_id: Of the agenda.
        attempt: The one that is over.
        reason: `outdated` if its lease was taken for ended, `followed` if a later attempt is
            known, `ended` if it has ended itself, or the whole agenda.
        why: The same in words.
        state: Of the agenda, if it has `ended`.
    """

    code: ClassVar[str] = "lease_lost"

    def __init__(
        self,
        agenda_id: str,
        attempt: int,
        reason: Literal["outdated", "followed", "ended"],
        why: str,
        *,
        state: str | None = None,
    ) -> None:
        super().__init__(
            f"attempt {attempt} of {agenda_id} is not yours any more: {why}; stop working on it"
        )
        self.reason = reason
        self.state = state


class CompletionError(PopStreamError):
    """A completion token completes nothing: its operation has gone another way."""

    code: ClassVar[str] = "completion_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"this token completes nothing: {why}")


class CompletionLateError(CompletionError):
    """A completion token completes nothing any more: its time or its agenda is over."""

    code: ClassVar[str] = "completion_late"


class UnreadableRecordError(PopStreamError):
    """A record's bytes are no event of ours; it belongs to the dead letters."""

    code: ClassVar[str] = "unreadable_record"


class RecordTooLargeError(PopStreamError):
    """What was to be written is larger than a record may be; writing it again cannot help.

    Attributes:
        limit: The most bytes that fit; 0 if only the broker knows.
    """

    code: ClassVar[str] = "too_large"

    def __init__(self, what: str, size: int, limit: int) -> None:
        most = f"at most {limit:,}" if limit else "fewer"
        super().__init__(f"{what} has {size:,} bytes, and {most} can be kept")
        self.limit = limit


class OffsetsMovedError(PopStreamError):
    """Another process has folded past these offsets: drop the batch and read anew."""

    code: ClassVar[str] = "offsets_moved"


class UnstorableError(PopStreamError):
    """Some event of a batch holds what no row can; without that event, the rest can be kept."""

    code: ClassVar[str] = "unstorable"


class MigrationError(PopStreamError):
    """A migration that was applied has changed since, or one could not be applied."""

    code: ClassVar[str] = "migration"


class UnavailableError(PopStreamError):
    """A broker or a database is away; trying again later is right."""

    code: ClassVar[str] = "unavailable"


class UnservedError(UnavailableError):
    """A part lacks what it needs for this; the message names the remedy, and is for callers."""

    code: ClassVar[str] = "unserved"
