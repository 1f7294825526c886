"""What becomes of each field of an object, and of the ids in it."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN, INSIGHT_ID_LENGTH, TOPIC_SAFE_PATTERN
from pop_stream.model.validation import shorten
from pop_stream.pop_import.objects import PopObject

Became = Literal["mapped", "dropped", "unknown", "refused"]

DefinedKind = Literal["pool", "insight", "customer", "template"]

TargetKind = DefinedKind | Literal["agenda", "run"]
"""What an object becomes; a run is a submission, as an agenda is."""

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9._:~-]+")
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_DIGEST_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What whoever imports decides.

    Attributes:
        customer: Of agendas that name none.
        pool_capacity: `max_in_flight` of resource pools; without it they limit nothing.
        renamed: New ids, by those that objects have.
        strict: Whether a field that POP did not have is refused, instead of left out.
    """

    customer: str | None = None
    pool_capacity: int | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class FieldFate:
    """What became of a field.

    Attributes:
        field: Its path, as POP names it.
        value: As JSON, shortened to 200 characters; "nothing" if it is missing.
        became: `unknown` fields are left out, as POP left them out.
        to: Of what is mapped, our field, with the value where that changed.
        why: The reason, or the remedy.
    """

    field: str
    value: str
    became: Became
    to: str = ""
    why: str = ""

    def __str__(self) -> str:
        """One line for a terminal."""
        reason = f" ({self.why})" if self.why else ""
        match self.became:
            case "mapped":
                return f"{self.field} -> {self.to}{reason}"
            case "dropped":
                return f"{self.field} dropped: {self.why}"
            case "unknown":
                return f"{self.field} = {self.value} not known: {self.why}"
            case _:
                return f"{self.field} = {self.value} REFUSED: {self.why}"


@dataclass(frozen=True, slots=True)
class ImportedObject:
    """An object of POP's, and what it becomes.

    Attributes:
        origin: As it was read.
        kind: None if it becomes nothing.
        content: The definition or submission as JSON has it; empty if it becomes nothing.
    """

    origin: PopObject
    fates: tuple[FieldFate, ...]
    kind: TargetKind | None = None
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id here; empty if it becomes nothing."""
        return str(self.content.get("id", ""))

    @property
    def is_refused(self) -> bool:
        """Whether something has to be done before it can be imported."""
        return any(one.became == "refused" for one in self.fates)


class Fields:
    """The fields of an object, of which each is accounted for.

    Args:
        given: The object.
        path: Of the object in the whole, empty or with a dot at the end.
        fates: Where to note what becomes of a field.
    """

    def __init__(
        self, given: Mapping[str, Any], path: str = "", fates: list[FieldFate] | None = None
    ) -> None:
        self._given = given
        self._left = {name: one for name, one in given.items() if one is not None}
        self._path = path
        self._fates = [] if fates is None else fates

    def within(self, path: str, given: Mapping[str, Any]) -> "Fields":
        """The fields of an object inside this one, accounted for in the same place."""
        return Fields(given, f"{self._path}{path}.", self._fates)

    def given(self, name: str) -> object:
        """The value of a field, None if there is none."""
        return self._given.get(name)

    def take(self, name: str) -> Any:  # noqa: ANN401  # any JSON
        """The value of a field, None if there is none; the caller says what becomes of it."""
        return self._left.pop(name, None)

    def mapped(self, name: str, value: object, to: str, why: str = "") -> None:
        """Note that a field became one of ours."""
        self._note(name, value, "mapped", to, why)

    def dropped(self, name: str, value: object, why: str) -> None:
        """Note that a field is left out on purpose."""
        self._note(name, value, "dropped", "", why)

    def refuse(self, name: str, why: str, *, value: object = None) -> None:
        """Note that a field keeps the object from being imported; `why` names the remedy."""
        self._note(name, value, "refused", "", why)

    def drop(self, name: str, why: str) -> None:
        """Leave a field out on purpose, if it is there."""
        value = self.take(name)
        if value is not None:
            self.dropped(name, value, why)

    def drop_all(self, why: str) -> None:
        """Leave out all fields that are left."""
        for name in [*self._left]:
            self.drop(name, why)

    def leave_unknown(self, what: str, *, strict: bool) -> None:
        """Account for what is left: POP had no such fields, and ignored them."""
        for name, value in self._left.items():
            why = f"{what} of POP's have no such field, and POP ignored it; remove it"
            if strict:
                self._note(name, value, "refused", "", f"{why}, or import without --strict")
            else:
                why = f"{why}, or correct its name; the rest is imported without it"
                self._note(name, value, "unknown", "", why)
        self._left.clear()

    @property
    def is_refused(self) -> bool:
        """Whether something keeps the object from being imported."""
        return any(one.became == "refused" for one in self._fates)

    def imported(
        self,
        origin: PopObject,
        kind: TargetKind | None = None,
        content: Mapping[str, Any] | None = None,
    ) -> ImportedObject:
        """The outcome; without content if something was refused."""
        sound = {} if self.is_refused or content is None else content
        return ImportedObject(origin, tuple(self._fates), kind, sound)

    def _note(self, name: str, value: object, became: Became, to: str, why: str) -> None:
        shown = "nothing" if value is None else shorten(value)
        self._fates.append(FieldFate(shorten(f"{self._path}{name}"), shown, became, to, why))


class Names:
    """Ids as they are here, the same for the same id of POP's each time.

    Args:
        renamed: Ids that were chosen by whoever imports.
    """

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = renamed
        self._origins: dict[tuple[str, str], str] = {}
        self._alike: Counter[str] = Counter()

    def of(self, kind: str, given: object) -> str:
        """Our id of what POP calls so.

        Args:
            kind: `insight` may hold fewer characters than the others.
            given: POP's id.

        Raises:
            SubmissionError: If none can be made of it, or another id already became the same.
        """
        if not isinstance(given, str) or not given:
            raise SubmissionError([Issue("id", shorten(given), "must be a text; correct it")])
        found = self._renamed.get(given, given)
        if not _fits(kind, found):
            found = _fitted(kind, found)
        if not _fits(kind, found):
            raise SubmissionError([Issue("id", shorten(given), _choose(given))])
        origin = self._origins.setdefault((kind, found), given)
        if origin != given:
            also = f"becomes {found!r} here, as {shorten(origin)!r} does; {_choose(given)}"
            raise SubmissionError([Issue("id", shorten(given), also)])
        return found

    def of_content(self, content: object) -> str:
        """An id for what has none, made of what it says; another one for each that says it."""
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = sha256(text.encode()).hexdigest()[: 2 * _DIGEST_LENGTH]
        self._alike[digest] += 1
        number = self._alike[digest]
        return f"pop-{digest}" if number == 1 else f"pop-{digest}-{number}"


def whole_number(value: object) -> int | None:
    """A whole number, also one that is given as a text, as POP took it; else None."""
    if isinstance(value, str):
        text = value.strip()
        return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fits(kind: str, text: str) -> bool:
    pattern = TOPIC_SAFE_PATTERN if kind == "insight" else ID_PATTERN
    return len(text) <= _length(kind) and re.fullmatch(pattern, text) is not None


def _length(kind: str) -> int:
    return INSIGHT_ID_LENGTH if kind == "insight" else ID_LENGTH


def _fitted(kind: str, given: str) -> str:
    """An id that may stand in URLs and topics; what does not fit becomes a hyphen."""
    length = _length(kind)
    others = _NOT_IN_TOPICS if kind == "insight" else _NOT_IN_IDS
    found = others.sub("-", _SCHEME.sub("", given)).strip("-._:~")
    if len(found) <= length:
        return found
    digest = sha256(given.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{found[: length - _DIGEST_LENGTH - 1]}-{digest}"


def _choose(given: str) -> str:
    return f"choose its id here with --rename {shorten(given, 60)!r}=ID"
