"""POP's objects in JSON documents: reads them, and finds out what each of them is."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NoReturn, cast

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.validation import is_storable, shorten, unstorable_issue

PopKind = Literal[
    "Agenda",
    "AgendaTemplate",
    "Customer",
    "Insight",
    "ResourcePool",
    "Run",
    "AgendaProgress",
    "OperationProgress",
    "ReadyAgenda",
    "InsightScheduleInfo",
    "TransformRequest",
]
"""What POP calls its objects; `Run` is a request to `/agenda/service/run`."""

NAMED_KINDS: Final[Mapping[str, PopKind]] = {
    "agenda": "Agenda",
    "agendatemplate": "AgendaTemplate",
    "customer": "Customer",
    "insight": "Insight",
    "resourcepool": "ResourcePool",
}
"""Kinds by the name of their endpoint, for objects that do not show what they are."""

MAX_DEPTH: Final = 100
"""Objects and lists inside each other; no document of POP's comes near."""

_SIGNS: Final[Sequence[tuple[PopKind, frozenset[str]]]] = (
    ("OperationProgress", frozenset({"agendaProgressId"})),
    (
        "AgendaProgress",
        frozenset({"processingState", "operationProgress", "attemptsCompleted", "agendaId"}),
    ),
    ("InsightScheduleInfo", frozenset({"pendingCustomerIds"})),
    ("AgendaTemplate", frozenset({"agenda", "staticParameters", "isDefaultTemplate"})),
    ("Agenda", frozenset({"operations"})),
    ("TransformRequest", frozenset({"agendaTemplateId", "agendaTemplateTitle"})),
    ("Insight", frozenset({"mappers", "queueName", "queueSize", "schedulingAlgorithm"})),
    ("ResourcePool", frozenset({"insightIds"})),
    ("Customer", frozenset({"resourcePoolId", "billingCode"})),
)
"""Fields that only one kind has, of the kinds that were not recognised further up."""

_LISTS: Final = ("all", "agendas", "agendaProgresses", "progressList")
"""Under what POP's answers hold objects."""


@dataclass(frozen=True, slots=True)
class PopObject:
    """One object as POP had it.

    Attributes:
        source: The document that it stands in.
        number: Its place in there, from 1.
        kind: None if nothing shows what it is.
        fields: Without those that are null: POP took null and absent for the same.
    """

    source: str
    number: int
    kind: PopKind | None
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        """What a person finds it by."""
        name = self.fields.get("id") or self.fields.get("title") or ""
        shown = f" {shorten(name, 60)}" if name else ""
        return f"{self.source}: object {self.number}, {self.kind or 'of no known kind'}{shown}"


def read_objects(
    documents: Iterable[tuple[str, bytes]], otherwise: PopKind | None = None
) -> tuple[list[PopObject], list[tuple[str, Issue]]]:
    """The objects of all documents, in order, and what cannot be read, with its document.

    Args:
        documents: Name and content: an object, a list, an answer of POP's API with a list in
            it, or several of these after each other, such as one on each line.
        otherwise: What an object is if neither its own fields nor others' references show it.
    """
    found: list[PopObject] = []
    unreadable: list[tuple[str, Issue]] = []
    for source, raw in documents:
        try:
            found += _objects_of(source, raw)
        except SubmissionError as error:
            unreadable += [(source, issue) for issue in error.issues]
    return _with_kinds(found, otherwise), unreadable


def _objects_of(source: str, raw: bytes) -> list[PopObject]:
    objects = [one for value in _values(raw) for one in _unwrapped(value)]
    if not objects:
        raise SubmissionError([Issue("document", source, "holds no object; give another file")])
    found = []
    for number, value in enumerate(objects, 1):
        if not isinstance(value, dict):
            message = "is no JSON object; POP's customers, pools, insights … are"
            raise SubmissionError([Issue(f"object {number}", shorten(value), message)])
        fields = {name: one for name, one in value.items() if one is not None}
        found.append(PopObject(source, number, _shown_kind(fields), fields))
    return found


def one_value(text: str) -> object:
    """The JSON value that a text is.

    Raises:
        SubmissionError: If it is none, or is more than one.
    """
    found = [*islice(_values(text.encode()), 2)]
    if len(found) != 1:
        raise SubmissionError([Issue("document", shorten(text), "must be one JSON value")])
    return found[0]


def _values(raw: bytes) -> Iterator[object]:
    """The JSON values that follow each other in a document."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        issue = Issue("document", f"byte {error.start}", "is no UTF-8; save it as UTF-8")
        raise SubmissionError([issue]) from None
    at = _after_space(text, 0)
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except RecursionError:
            raise _too_deep() from None
        except ValueError as error:
            issue = Issue("document", shorten(text[at:], 60), f"is no JSON: {error}")
            raise SubmissionError([issue]) from None
        if fault := _fault_of(value):
            raise SubmissionError([fault])
        yield value
        at = _after_space(text, end)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _unwrapped(value: object) -> Iterator[object]:
    """The objects in a list, or in an answer of POP's API."""
    if isinstance(value, list):
        yield from value
        return
    if not isinstance(value, dict):
        yield value
        return
    if value.get("errorResponse") or value.get("error") is True:
        shown = shorten(value.get("errorResponse") or value.get("error"))
        message = "POP answered with an error; ask it again and import the answer"
        raise SubmissionError([Issue("errorResponse", shown, message)])
    lists = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
    if not lists:
        yield value
    for one in lists:
        yield from one


def _fault_of(value: object) -> Issue | None:
    """What of a value no database can hold, or is nested too deep; not recursive."""
    waiting = [("document", value, 0)]
    while waiting:
        path, node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return _too_deep().issues[0]
        if isinstance(node, dict):
            for name, one in node.items():
                if not is_storable(name):
                    return unstorable_issue(path, name)
                waiting.append((shorten(f"{path}.{name}"), one, depth + 1))
        elif isinstance(node, list):
            waiting += [(f"{path}[{place}]", one, depth + 1) for place, one in enumerate(node)]
        elif isinstance(node, str) and not is_storable(node):
            return unstorable_issue(path, node)
    return None


def _too_deep() -> SubmissionError:
    message = f"is nested more than {MAX_DEPTH} deep, as no object of POP's is; flatten it"
    return SubmissionError([Issue("document", "objects and lists", message)])


def _shown_kind(fields: Mapping[str, object]) -> PopKind | None:
    """What an object's own fields show it to be."""
    names = fields.keys()
    if {"insightId", "agendaId"} <= names:
        return "ReadyAgenda"
    if {"agendaTemplateId", "payload"} <= names:
        return "Run"
    for kind, signs in _SIGNS:
        if signs & names:
            return kind
    return None


def _with_kinds(found: Sequence[PopObject], otherwise: PopKind | None) -> list[PopObject]:
    """Objects with base fields only are what others refer to, or what the caller says."""
    pools = {_text(one.fields.get("resourcePoolId")) for one in found}
    customers = {_text(one.fields.get("customerId")) for one in found if one.kind == "Agenda"}

    def kind_of(one: PopObject) -> PopKind | None:
        name = _text(one.fields.get("id"))
        is_pool, is_customer = name in pools, name in customers
        if one.kind is not None or not name or is_pool == is_customer:
            return one.kind or otherwise
        return "ResourcePool" if is_pool else "Customer"

    return [replace(one, kind=kind_of(one)) for one in found]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        msg = f"the field {shorten(twice, 60)!r} stands twice in one object; remove one"
        raise ValueError(msg)
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _no_number(text)
    return number


def _no_number(text: str) -> NoReturn:
    msg = f"{shorten(text, 60)} is no number that JSON can carry; write it as a text"
    raise ValueError(msg)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=cast("Any", _unique), parse_float=_finite, parse_constant=_no_number
)
