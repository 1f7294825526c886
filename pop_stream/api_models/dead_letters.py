"""Dead letters, as they are chosen, shown and commanded."""

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.api_models.commands import MAX_FILTER_VALUES, Ids, Reason
from pop_stream.model.agenda import OwnId
from pop_stream.model.errors import Issue
from pop_stream.model.json_types import InstantField
from pop_stream.policy.lifecycle.dead_letters import ID_BYTES, LetterKind, LetterState

MAX_PAGE_SIZE: Final = 500
"""Most letters of one page."""

MAX_COMMANDED: Final = 1_000
"""Most letters that one command settles; who wants more sends it again."""

LETTER_ID_PATTERN: Final = f"^[0-9a-f]{{{2 * ID_BYTES}}}$"

LetterId = Annotated[str, StringConstraints(pattern=LETTER_ID_PATTERN)]
Code = Annotated[str, StringConstraints(max_length=100)]
LetterAction = Literal["redrive", "discard"]

OPEN: Final[tuple[LetterState, ...]] = ("open",)


class LetterSelection(BaseModel):
    """Dead letters that fit every field that is set; those that are open, if no state is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[tuple[LetterId, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    kind: Annotated[tuple[LetterKind, ...], Field(max_length=len(get_args(LetterKind)))] = ()
    code: Annotated[tuple[Code, ...], Field(max_length=100)] = ()
    customer_id: Ids = ()
    insight_id: Ids = ()
    agenda_id: Annotated[tuple[OwnId, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    state: Annotated[tuple[LetterState, ...], Field(max_length=len(get_args(LetterState)))] = (
        OPEN
    )
    from_at: InstantField | None = Field(default=None, description="Written then or later.")
    before_at: InstantField | None = Field(default=None, description="Written before that.")


class LetterRequest(BaseModel):
    """Redrive or discard one letter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason = Field(default="", description="For the audit log.")


class LetterCommand(LetterRequest):
    """Redrive or discard all letters that fit and are open, the newest 1,000 at most."""

    action: LetterAction
    filter: LetterSelection = Field(description="At least one field of it must be set.")
    dry_run: bool = Field(default=False, description="Only count.")


class DeadLetterView(ResponseModel, frozen=True):
    """What came to nothing and waits for a person.

    Attributes:
        kind: `unreadable` record, `refused` submission, `exhausted` agenda, or `webhook`.
        code: Stable name of the reason.
        part: That gave it up.
        url: Of a webhook, where it goes.
        partition: -1 if it is about no record, and so is `offset`.
        is_redrivable: Whether it can be redriven at all, as far as it is known.
        settled_by: Who redrove or discarded it.
    """

    id: str
    kind: LetterKind
    state: LetterState
    code: str
    reason: str
    part: str
    at: Instant
    customer_id: str | None
    insight_id: str | None
    agenda_id: str | None
    webhook_id: str | None
    url: str | None
    topic: str
    partition: int
    offset: int
    truncated: bool
    is_redrivable: bool
    settled_at: Instant | None
    settled_by: str | None
    settled_reason: str | None


class DeadLetterDetail(DeadLetterView, frozen=True):
    """A letter, whole.

    Attributes:
        value_base64: The record's value; the agenda as accepted; the body of a webhook. Half a
            mebibyte of it, if it is `truncated`.
        issues: What is wrong with a submission, one by one.
    """

    value_base64: str
    issues: tuple[Issue, ...]


class DeadLetterList(ResponseModel, frozen=True):
    """A page of letters, newest first.

    Attributes:
        next: The `before` of the next page; null on the last.
    """

    letters: list[DeadLetterView]
    next: int | None


class ReasonView(ResponseModel, frozen=True):
    """Letters of one kind with the same code.

    Attributes:
        example: The reason of the newest, in words.
    """

    kind: LetterKind
    code: str
    letters: int
    oldest_at: Instant
    newest_at: Instant
    example: str


class ReasonList(ResponseModel, frozen=True):
    """Letters that fit, by kind and code, most letters first.

    Attributes:
        total: How many letters were counted.
        total_is_capped: Whether only the newest 10,000 were.
    """

    total: int
    total_is_capped: bool
    reasons: list[ReasonView]


LetterOutcome = Annotated[
    Literal["done", "already", "refused", "not_possible"],
    Meta(
        description="`already`: it was settled before, or went on by itself; nothing is done. "
        "`refused`: the submission is still not sound, or not welcome."
    ),
]


class LetterResult(ResponseModel, frozen=True):
    """What became of a command for one letter.

    Attributes:
        state: Of the letter now.
        detail: In words; empty if it was done.
    """

    id: str
    action: LetterAction
    outcome: LetterOutcome
    state: LetterState
    detail: str


class LetterCommandResult(ResponseModel, frozen=True):
    """What became of a command for many letters.

    Attributes:
        matched: Open letters that fit and were looked at.
        outcomes: How many, by outcome; of a dry run, `done` are those that seem possible.
        has_more: Whether more fit; the same command again looks at those.
        failures: Of those that were not done, the first twenty.
    """

    action: LetterAction
    dry_run: bool
    matched: int
    outcomes: dict[str, int]
    has_more: bool
    failures: list[LetterResult]


def is_letter_set(selection: LetterSelection) -> bool:
    """Whether any field but the state narrows it."""
    fields: dict[str, Any] = selection.model_dump(exclude={"state"})
    return any(one is not None and one != () for one in fields.values())
