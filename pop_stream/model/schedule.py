"""A schedule: a submission that is repeated at instants, each with its own nominal time.

An *occurrence* is one instant of a schedule. Its agenda has the id `<schedule>.<instant>`, the
series `schedule:<schedule>` with that instant as the position, and the link `<schedule>` unless
the submission names another. So an occurrence that is submitted twice, by two processes or
after a crash, runs once.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo

import msgspec
from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pop_stream.model.admission import ACCEPTED
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.ids import OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.model.partitioning import murmur2
from pop_stream.model.series import Series
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.template import TEMPLATE_RUN, fill
from pop_stream.model.tenancy import customer_of_id, foreign_id_issue
from pop_stream.model.trigger import Trigger, zone_of
from pop_stream.model.validation import issues_of
from pop_stream.model.wait_for import without_unnamed

MAX_NAME: Final = 80
"""Longest name of a schedule without its customer: its agendas' ids and series hold it."""

MAX_CATCH_UP: Final = 1_000
"""Most missed occurrences that are made up for at once."""

MAX_BUFFERED: Final = 100
"""Most occurrences that wait for the end of one before."""

OCCASION: Final = "pop.occasion"
"""The name by which a submission refers to its occurrence: `@<pop.occasion::/nominal>`."""

Misfire = Literal["fire_all", "coalesce", "skip"]
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other", "replace"]

_SECONDS: Final = 366 * 86_400
_OURS: Final = ("id", "series", "trace", "template")


@lru_cache(maxsize=4_096)
def _exception(text: str) -> datetime | date:
    """A day as in 2026-12-25, or an instant.

    Raises:
        ValueError: If it is neither.
    """
    try:
        return date.fromisoformat(text) if len(text) == len("2026-12-25") else _INSTANT(text)
    except ValueError:
        msg = "is neither a day as in 2026-12-25 nor an instant as in 2026-12-25T08:00:00Z"
        raise ValueError(msg) from None


def _exception_text(text: str) -> str:
    _exception(text)
    return text


_INSTANT: Final = TypeAdapter(InstantField).validate_python
ExceptionText = Annotated[str, AfterValidator(_exception_text)]


class Schedule(SharedDefinition):
    """Submits an agenda, or runs a template, whenever its trigger fires."""

    id: Annotated[str, StringConstraints(pattern=OWN_ID_PATTERN, max_length=OWN_ID_LENGTH)]
    title: str = ""
    timezone: Annotated[str, StringConstraints(max_length=100)] = Field(
        default="UTC", description="Of the IANA database; cron and rrule are read on its clock."
    )
    start: InstantField | None = Field(
        default=None, description="Nothing is due before; without it, from when it is known on."
    )
    trigger: Trigger = Field(description="When it fires.")
    end: InstantField | None = Field(default=None, description="Nothing is due then, or later.")
    exceptions: Annotated[tuple[ExceptionText, ...], Field(max_length=1_000)] = Field(
        default=(), description="Instants, or whole days of the time zone, that are left out."
    )
    jitter_s: Annotated[int, Field(ge=0, le=86_400), WHOLE_NUMBER] = Field(
        default=0,
        description="Each occurrence is submitted so many seconds late at most; how many, its "
        "instant and the schedule's id say. Its nominal time stays, and so does the order.",
    )
    misfire: Misfire = Field(
        default="fire_all",
        description="Of occurrences that could not be submitted within a minute: each, the "
        "last one only, or none.",
    )
    catch_up_s: Annotated[int, Field(ge=60, le=_SECONDS), WHOLE_NUMBER] = Field(
        default=86_400, description="What is later than this is not made up for."
    )
    max_catch_up: Annotated[int, Field(ge=1, le=MAX_CATCH_UP), WHOLE_NUMBER] = Field(
        default=100, description="With misfire fire_all: the last so many are made up for."
    )
    overlap: Overlap = Field(
        default="allow",
        description="While an occurrence has not ended, the next one is submitted all the "
        "same, is skipped, waits (the first of them, or up to 100), waits while the other is "
        "cancelled, or takes its place at once while that is cancelled.",
    )
    expires_after_s: Annotated[int, Field(ge=1, le=_SECONDS), WHOLE_NUMBER] | None = Field(
        default=None,
        description="Sets `expires_at` of each agenda, so long after its nominal time.",
    )
    pause_after_failures: Annotated[int, Field(ge=1, le=1_000), WHOLE_NUMBER] | None = Field(
        default=None,
        description="It pauses once so many occurrences in a row have failed, until resumed.",
    )
    paused: bool = Field(default=False, description="Occurrences are skipped while it is.")
    submission: dict[str, JsonValue] = Field(
        description="As in `POST /v1/agendas`: an agenda or a template's run, without `id` and "
        "`series`. @<pop.occasion::/nominal> is its instant; so are /local, /date, /yesterday, "
        "/stamp, /previous and /next; /agenda and /previous_agenda are ids."
    )

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str) -> str:
        zone_of(name)
        return name

    @field_validator("trigger")
    @classmethod
    def _trigger_fires(cls, trigger: Trigger, info: ValidationInfo) -> Trigger:
        start = info.data.get("start")
        if trigger.rrule is not None and start is None:
            msg = "a recurrence rule is counted from the schedule's `start`; give it"
            raise ValueError(msg)
        if _is_judged(info) and not _first(info.data, trigger, 1):
            since = f"from start, {start.isoformat()}, on" if start else "after 1999"
            msg = f"never fires {since}; change it"
            raise ValueError(msg)
        return trigger

    @field_validator("end")
    @classmethod
    def _end_is_later(cls, end: datetime | None, info: ValidationInfo) -> datetime | None:
        start, trigger = info.data.get("start"), info.data.get("trigger")
        if end is None or trigger is None or not _is_judged(info):
            return end
        following = _first(info.data, trigger, 3)
        known = ", ".join(one.isoformat() for one in following)
        if start is not None and end <= start:
            since = f"must be later than start, {start.isoformat()}"
            msg = f"{since}; without it the next are {known}"
            raise ValueError(msg)
        if following and following[0] >= end:
            msg = f"nothing is due before; give a later one, or none: the next are {known}"
            raise ValueError(msg)
        return end

    @field_validator("submission")
    @classmethod
    def _submission_is_sound(
        cls, submission: dict[str, JsonValue], info: ValidationInfo
    ) -> dict[str, JsonValue]:
        if info.context is ACCEPTED:
            return submission
        if wrong := [name for name in _OURS if name in submission]:
            msg = f"has {wrong[0]}, which each occurrence sets itself; leave it out"
            raise ValueError(msg)
        beside = (_LONG_AGO, _LONG_AGO)
        sample = _occasion("sample", "sample", _LONG_AGO, zone_of("UTC"), beside)
        try:
            customer_id = _customer_of(fill(submission, {OCCASION: sample}))
        except SubmissionError as error:
            raise ValueError("; ".join(map(str, error.issues[:3]))) from None
        owner = info.data.get("owner")
        if owner is not None and customer_id != owner:
            msg = f"customer_id = {customer_id}: must be the schedule's owner, {owner!r}"
            raise ValueError(msg)
        if customer_id is None:
            msg = "customer_id = nothing: name the customer whose work it is"
            raise ValueError(msg)
        return submission

    @model_validator(mode="after")
    def _id_is_its_owners(self) -> Self:
        if fault := foreign_id_issue(self.id, self.owner):
            raise ValueError(fault.message)
        if len(self.name) > MAX_NAME:
            msg = f"its id has {len(self.name)} characters, at most {MAX_NAME} are allowed"
            raise ValueError(msg)
        return self

    @property
    def name(self) -> str:
        """Its id without the customer that chose it."""
        return self.id.partition("@")[0]

    @property
    def series_id(self) -> str:
        """The series of its occurrences; an operator's is not mistaken for a customer's."""
        kind = "schedule" if customer_of_id(self.id) else "operators-schedule"
        return f"{kind}:{self.name}"

    def instants(self, after: datetime) -> Iterator[datetime]:
        """Its nominal instants later than one, in UTC, each once and in order."""
        zone = zone_of(self.timezone)
        left_out = {_exception(one) for one in self.exceptions}
        found = _from_start(self.trigger, after, zone, self.start)
        while (at := next(found, None)) is not None:
            if self.end is not None and at >= self.end:
                return
            day = at.astimezone(zone).date() if left_out else None
            if day is None or day not in left_out:
                if at not in left_out:
                    yield at
                continue
            # Not by each of its instants: there may be one a second.
            next_day = datetime.combine(day + _DAY, time(), zone).astimezone(UTC)
            if self.trigger.rrule is None and next_day > at:
                found = _from_start(self.trigger, next_day - _A_MOMENT, zone, self.start)

    def due_at(self, nominal: datetime) -> datetime:
        """When an occurrence is to be submitted, with its jitter."""
        if not self.jitter_s:
            return nominal
        hashed = murmur2(f"{self.id} {position_of(nominal)}".encode())
        return nominal + timedelta(seconds=self.jitter_s * hashed / 2**32)


_A_MOMENT: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _from_start(
    trigger: Trigger, after: datetime, zone: ZoneInfo, start: datetime | None
) -> Iterator[datetime]:
    begin = after if start is None else max(after, start - _A_MOMENT)
    return trigger.instants(begin, zone=zone, start=start)


def _is_judged(info: ValidationInfo) -> bool:
    """Whether to ask when it fires: not of what was accepted, nor of what has other faults."""
    return info.context is not ACCEPTED and {"timezone", "start"} <= info.data.keys()


def _first(fields: Mapping[str, Any], trigger: Trigger, most: int) -> list[datetime]:
    found = _from_start(trigger, _LONG_AGO, zone_of(fields["timezone"]), fields["start"])
    return [*islice(found, most)]


def position_of(nominal: datetime) -> int:
    """The position in its series of an occurrence: seconds since 1970."""
    return (nominal - _EPOCH) // timedelta(seconds=1)


def nominal_of(position: int) -> datetime:
    """The instant that a position stands for."""
    return _EPOCH + timedelta(seconds=position)


class Occurrence:
    """One instant of a schedule, and what is submitted for it.

    Args:
        schedule: As it is defined when the occurrence is submitted.
        nominal: The instant that it is for.
        previous: The nominal instant before; None if there is none, or it is not known.
        following: The one after; None if there is none.
        extra: Of one that is not due by itself: what marks its id and names its series.
        extra_position: Its position in a series of all that are marked by the same letter;
            None for its instant, in a series of those with the same mark.
    """

    def __init__(  # the fields of a value
        self,
        schedule: Schedule,
        nominal: datetime,
        previous: datetime | None,
        following: datetime | None,
        *,
        extra: str = "",
        extra_position: int | None = None,
    ) -> None:
        self.schedule = schedule
        self.nominal = nominal
        self._previous, self._following = previous, following
        self._extra, self._extra_position = extra, extra_position

    @property
    def agenda_id(self) -> str:
        """The id of its agenda, the same whenever it is submitted."""
        name, mark, customer_id = self.schedule.id.partition("@")
        extra = self._extra and f"~{self._extra}"
        return f"{name}.{_stamp(self.nominal)}{extra}{mark}{customer_id}"

    @property
    def series(self) -> Series:
        """Its place among the schedule's occurrences."""
        series_id, position = self.schedule.series_id, position_of(self.nominal)
        if self._extra_position is not None:
            return Series(id=f"{series_id}~{self._extra[0]}", position=self._extra_position)
        return Series(id=series_id + (self._extra and f"~{self._extra}"), position=position)

    def body(self) -> dict[str, object]:
        """The submission, with its tokens filled in, an id and a place in the series.

        Raises:
            SubmissionError: If a token names nothing.
        """
        schedule, zone = self.schedule, zone_of(self.schedule.timezone)
        own_id = self.agenda_id.partition("@")[0]
        beside = (self._previous, self._following)
        mark = f"~{self._extra}" if self._extra.startswith("b") else ""
        occasion = _occasion(schedule.name, own_id, self.nominal, zone, beside, mark=mark)
        body = without_unnamed(fill(schedule.submission, {OCCASION: occasion}))
        body.setdefault("link_id", schedule.name)
        if schedule.expires_after_s is not None:
            expiry = self.nominal + timedelta(seconds=schedule.expires_after_s)
            body.setdefault("expires_at", expiry.isoformat())
        series = self.series.model_dump()
        return {**body, "id": self.agenda_id, "series": series}


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}"


def _occasion(
    name: str,
    own_id: str,
    nominal: datetime,
    zone: ZoneInfo,
    beside: tuple[datetime | None, datetime | None],
    *,
    mark: str = "",
) -> Mapping[str, object]:
    local = nominal.astimezone(zone)
    previous, following = beside
    return {
        "schedule": name,
        "nominal": _text(nominal),
        "local": local.isoformat(),
        "date": local.date().isoformat(),
        "yesterday": (local.date() - timedelta(days=1)).isoformat(),
        "previous": _text(previous),
        "next": _text(following),
        "agenda": own_id,
        "previous_agenda": None if previous is None else f"{name}.{_stamp(previous)}{mark}",
        "stamp": _stamp(nominal),
    }


_STAMP: Final = re.compile(r"^(.+)\.\d{8}T\d{6}Z(~[a-z]\d+)?$")

OccurrenceKind = Literal["scheduled", "triggered", "backfilled"]


def schedule_of(agenda_id: str) -> str | None:
    """The id of the schedule whose occurrence an agenda is by its id; None if it is none."""
    named, mark, customer_id = agenda_id.partition("@")
    found = _STAMP.match(named)
    return f"{found[1]}{mark}{customer_id}" if found else None


def kind_of(agenda_id: str) -> OccurrenceKind:
    """What an occurrence came from, by the id of its agenda."""
    found = _STAMP.match(agenda_id.partition("@")[0])
    match found and found[2] and found[2][1]:
        case "t":
            return "triggered"
        case "b":
            return "backfilled"
        case _:
            return "scheduled"


def _customer_of(body: Mapping[str, object]) -> object:
    """The customer of a submission that is sound as far as can be known without its template.

    Raises:
        SubmissionError: If it is not.
    """
    if "template_id" not in body:
        return parse_agenda(body).customer_id
    try:
        run = TEMPLATE_RUN.model_validate_json(msgspec.json.encode(body), strict=True)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="run")) from None
    return run.model_dump(include={"customer_id"})["customer_id"]
