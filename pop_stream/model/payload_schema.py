"""JSON schemas of payloads: what a schema may ask, and how much work a payload may make of it.

A customer writes the schema, and whoever runs the template the payload; both are checked in
the middle of everybody's submissions. So the work is counted before it is done, in units of
some 50 ns, and what would be too much is refused. The count is of what the library does: it
visits each value with each subschema that applies to it, as often as the schema says so, for
it remembers nothing; a nest of `anyOf` with two equal references doubles with each level.

`_survey` walks the schema once. The subschemas that meet one value, with how often each does,
are a place; a property's name or an index leads from place to place. Equal places are one, so
that recursive schemas have few. Each place knows what a value there costs, by itself and by
character of text. A payload then costs the sum over its values. No clock is asked: the same
payload is taken or refused by every process.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs
import msgspec

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.validation import path_of, shorten

MAX_SCHEMA_BYTES: Final = 64 * 1024
"""Of a schema as JSON."""

MAX_VISITS: Final = 256
"""Subschemas that one value may meet, each counted as often as it is met."""

MAX_PATTERN_STATES: Final = 2_000
"""Of all patterns of one schema, repetitions written out: what they keep in memory."""

MAX_WORK: Final = 400_000
"""Units that one payload may cost, some 20 ms."""

_MAX_STEPS: Final = 50_000
_MAX_EXPLAINED_BYTES: Final = 8_000_000
_ERROR_BYTES: Final = 800
_MAX_REGEX_BYTES: Final = 4_000_000
_DFA_BYTES: Final = 100_000
_COMPILED: Final = 128
"""Schemas kept compiled; each change of a template makes a new one."""

_STATES_A_UNIT: Final = 25
_UNEVALUATED_PASSES: Final = 3
_FRACTION_UNITS: Final = 50
_MULTIPLE_UNITS: Final = 300
_OBJECT_UNITS: Final = 5
_WORD_BITS: Final = 64

_PROPERTY_STATES: Final = 250
_WIDE_STATES: Final = 15
_PATTERN_TOKEN: Final = re.compile(
    r"(?P<property>\\[pP](?:\{[^}]*\}|.))|(?P<wide>\.|\\[DWSs])"
    r"|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<repeat>\{(\d+)(?:,(\d*))?\})"
    r"|(?P<again>[*+?])|(?P<open>\()|(?P<close>\))|\\.|.",
    re.DOTALL,
)

_IN_PLACE: Final = ("if", "then", "else", "not", "allOf", "anyOf", "oneOf")
_IN_PLACE_BY_NAME: Final = ("dependentSchemas", "dependencies")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
_OTHER_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_POSITIONAL: Final = ("prefixItems", "items")
_FOREIGN: Final = ("$dynamicRef", "$recursiveRef")

Schema = Mapping[str, object] | bool


class _UnboundedError(ValueError):
    """The schema asks for more than is counted, or for what cannot be counted."""


def schema_error(schema: Schema) -> str | None:
    """Why the document is no schema that payloads can be held to; None if it is one.

    References to other documents are refused, and so are patterns with look-around or back
    references, whose matching time has no bound, and schemas that ask for too much work.
    """
    try:
        _compiled(msgspec.json.encode(schema).decode())
    except ValueError as error:
        return shorten(str(error).split("\n", 1)[0])
    return None


def payload_issues(schema: Schema, payload: object, *, field: str) -> Iterator[Issue]:
    """What is wrong with a payload, at most as much as a refusal lists.

    Takes at most `MAX_WORK` units, and that again to say what is wrong.

    Args:
        schema: Of a template in force; one that cannot be used takes no payload.
        payload: Any JSON.
        field: What the payload is called in the issues.
    """
    if fault := schema_error(schema):
        yield Issue(field, shorten(schema), f"cannot be checked: payload_schema {fault}")
        return
    compiled = _compiled(msgspec.json.encode(schema).decode())
    work = compiled.work(payload)
    if work.units > MAX_WORK:
        message = (
            f"is too much to check: more than {MAX_WORK:,} steps by this schema; send less at "
            "once, or have the schema ask less of each value"
        )
        yield Issue(field, f"{work.units:,} steps", message)
    elif not compiled.validator.is_valid(payload):
        yield from compiled.explain(payload, work, field)


@dataclass(frozen=True, slots=True)
class _Work:
    """What checking one payload costs.

    Attributes:
        units: Of time.
        errors: That there can be at most.
        copied: Characters of the payload in all errors there could be, each with its value.
    """

    units: int
    errors: int
    copied: int


@dataclass(frozen=True, slots=True)
class _CompiledSchema:
    """A schema that is ready to be used.

    Attributes:
        places: By number; the payload itself is in the first.
        widest: Most bytes of the schema that one error's message repeats.
    """

    validator: jsonschema_rs.Validator
    places: Sequence["_Place"]
    widest: int

    def work(self, payload: object) -> "_Work":
        """What checking the payload costs; counting ends soon after `MAX_WORK`."""
        units, errors, copied = 0, 0, 0
        waiting: list[tuple[object, int, int]] = [(payload, 0, 0)]
        while waiting and units <= MAX_WORK:
            value, number, above = waiting.pop()
            place = self.places[number]
            above += place.visits
            errors += place.visits
            units += place.units * (1 + _number_units(value))
            if isinstance(value, str):
                units += len(value) * place.text_states // _STATES_A_UNIT
                copied += len(value) * above
            elif isinstance(value, Mapping):
                keys = sum(map(len, value))
                units += keys * place.key_states // _STATES_A_UNIT
                copied += keys * above
                waiting += [(one, place.at(name), above) for name, one in value.items()]
            elif isinstance(value, list | tuple):
                waiting += [(one, place.at(at), above) for at, one in enumerate(value)]
        return _Work(units, errors, copied)

    def explain(self, payload: object, work: "_Work", field: str) -> Iterator[Issue]:
        """What is wrong with a payload that does not fit.

        The library makes all errors before it shows the first: of a payload with so much
        room for them that memory would not do, nothing more is said than that it has some.
        """
        room = work.errors * (_ERROR_BYTES + self.widest) + work.copied
        if room > _MAX_EXPLAINED_BYTES:
            message = (
                "does not fit payload_schema, and is too large to say where; check it with any "
                "JSON Schema validator, or try with less of it"
            )
            yield Issue(field, shorten(type(payload).__name__), message)
            return
        errors = self.validator.iter_errors(payload)
        for error in islice(errors, SubmissionError.MAX_ISSUES):
            path = path_of((field, *error.instance_path), document=field)
            rule = "/".join(str(part) for part in error.schema_path)
            message = f"{shorten(error.message)} (schema: /{rule})"
            yield Issue(path, shorten(error.instance), message)


@lru_cache(maxsize=_COMPILED)
def _compiled(schema: str) -> _CompiledSchema:
    if len(schema.encode()) > MAX_SCHEMA_BYTES:
        msg = f"it holds more than {MAX_SCHEMA_BYTES:,} bytes; leave rules out"
        raise _UnboundedError(msg)
    document = msgspec.json.decode(schema)
    places, widest = _survey(document)
    validator = jsonschema_rs.validator_for(
        document,
        validate_formats=True,
        offline=True,
        mask="the value",
        pattern_options=jsonschema_rs.RegexOptions(
            size_limit=_MAX_REGEX_BYTES, dfa_size_limit=_DFA_BYTES
        ),
    )
    return _CompiledSchema(validator, places, widest)


@dataclass(slots=True)
class _Place:
    """Where a value may stand: what meets it there, and where its parts stand.

    Attributes:
        units: That one value costs here, its text aside.
        visits: Subschemas that it meets here.
        text_states: Of the patterns that its text is matched with.
        key_states: Of those that each of its keys is.
        parts: Places of named properties and of first items; all else is in `other_property`
            or `other_item`.
    """

    units: int = 1
    visits: int = 0
    text_states: int = 0
    key_states: int = 0
    parts: dict[str | int, int] = field(default_factory=dict)
    other_property: int = 0
    other_item: int = 0

    def at(self, part: str | int) -> int:
        """The place of a property or an item."""
        other = self.other_item if isinstance(part, int) else self.other_property
        return self.parts.get(part, other)


def _survey(document: Any) -> tuple[Sequence[_Place], int]:  # noqa: ANN401  # any JSON
    """All places of a schema, and the most bytes that one message repeats of it.

    Raises:
        _UnboundedError: If there is too much of anything.
    """
    survey = _Survey(document)
    places: list[_Place] = []
    while survey.waiting:
        places.append(survey.place(survey.waiting.popleft()))
    return places, survey.widest


class _Survey:
    """Walks a schema from place to place; each is numbered when it is first seen."""

    def __init__(self, document: Any) -> None:  # noqa: ANN401  # any JSON
        self._root = document
        self._numbers: dict[tuple[int, ...], int] = {}
        self._pattern_states: dict[str, int] = {}
        self._steps = 0
        self.widest = 0
        self.waiting: deque[Sequence[Any]] = deque()
        _expect_one_base(document)
        self._number([document])

    def place(self, met: Sequence[Any]) -> _Place:
        """The place where these subschemas meet a value, and those applied by them."""
        visits = self._visits(met)
        place = _Place()
        for one in visits:
            self._add_costs(place, one)
        objects = [one for one in visits if isinstance(one, Mapping)]
        names = {name for one in objects for name in _as_map(one.get("properties"))}
        longest = max((len(_positions(one)) for one in objects), default=0)
        self._count(len(objects) * (len(names) + longest + 1))
        place.other_property = self._number(_at_property(objects, None))
        place.other_item = self._number(_at_item(objects, None))
        for name in names:
            place.parts[name] = self._number(_at_property(objects, name))
        for index in range(longest):
            place.parts[index] = self._number(_at_item(objects, index))
        return place

    def _number(self, met: Sequence[Any]) -> int:
        """The number of a place, which is surveyed later if it is new."""
        self._count(1 + len(met))
        key = tuple(sorted(id(one) for one in met if isinstance(one, Mapping)))
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.waiting.append(met)
        return self._numbers[key]

    def _visits(self, met: Iterable[Any]) -> Sequence[Any]:
        """Every subschema that meets the same value, as often as it does."""
        visits: list[Any] = []
        waiting = list(met)
        while waiting:
            one = waiting.pop()
            visits.append(one)
            self._count(1)
            if len(visits) > MAX_VISITS:
                msg = (
                    f"one value would be checked by more than {MAX_VISITS} subschemas; nest "
                    "fewer anyOf, allOf, oneOf, if and $ref, and let none refer to itself "
                    "for the same value"
                )
                raise _UnboundedError(msg)
            if isinstance(one, Mapping):
                waiting += self._applied_in_place(one)
        return visits

    def _applied_in_place(self, one: Mapping[str, Any]) -> Sequence[Any]:
        applied = [part for name in _IN_PLACE if name in one for part in _as_list(one[name])]
        for name in _IN_PLACE_BY_NAME:
            applied += [part for part in _as_map(one.get(name)).values() if _is_schema(part)]
        if "$ref" in one:
            applied.append(self._referred(one["$ref"]))
        if any(name in one for name in _UNEVALUATED):
            return applied * _UNEVALUATED_PASSES
        return applied

    def _referred(self, reference: object) -> Any:  # noqa: ANN401  # any JSON
        found = self._root
        if not isinstance(reference, str) or not re.fullmatch(r"#(/.*)?", reference):
            msg = f"$ref {shorten(reference, 80)}: only places in this schema, as #/$defs/name"
            raise _UnboundedError(msg)
        for part in reference.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name) if isinstance(found, list) else name]
            except (LookupError, ValueError, TypeError):
                msg = f"$ref {shorten(reference, 80)} leads nowhere"
                raise _UnboundedError(msg) from None
        return found

    def _add_costs(self, place: _Place, one: Any) -> None:  # noqa: ANN401  # any JSON
        place.units += 1
        place.visits += 1
        if not isinstance(one, Mapping):
            return
        for name in ("enum", "const"):
            if name in one:
                self.widest = max(self.widest, len(msgspec.json.encode(one[name])))
        place.units += _own_units(one)
        place.text_states += sum(name in one for name in ("format", "minLength", "maxLength"))
        if isinstance(one.get("pattern"), str):
            place.text_states += self._states_of(one["pattern"])
        place.key_states += sum(map(self._states_of, _as_map(one.get("patternProperties"))))
        names = one.get("propertyNames")
        for part in self._visits([names]) if _is_schema(names) else ():
            place.units += _own_units(_as_map(part))
            if isinstance(_as_map(part).get("pattern"), str):
                place.key_states += self._states_of(part["pattern"])

    def _states_of(self, pattern: str) -> int:
        if pattern not in self._pattern_states:
            self._pattern_states[pattern] = pattern_states(pattern)
            if sum(self._pattern_states.values()) > MAX_PATTERN_STATES:
                msg = (
                    f"its patterns have more than {MAX_PATTERN_STATES:,} states, with all "
                    "repetitions written out; repeat less, or use maxLength"
                )
                raise _UnboundedError(msg)
        return self._pattern_states[pattern]

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            msg = "its parts meet in too many ways; combine fewer of them"
            raise _UnboundedError(msg)


def pattern_states(pattern: str) -> int:
    """How many states a pattern has at most, about, with counted repetitions written out."""
    groups, last = [0], 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                groups.append(1)
                continue
            case "again":
                groups[-1] += 1
                continue
            case "close" if len(groups) > 1:
                last = groups.pop()
            case "repeat":
                last *= max(int(token[6] or 0), int(token[5]) + 1)
            case _:
                last = _atom_states(token)
        groups[-1] += last
    return sum(groups)


def _atom_states(token: re.Match[str]) -> int:
    text = token[0]
    if token["property"] or (token["class"] and re.search(r"\\[pP]", text)):
        return _PROPERTY_STATES
    if token["wide"] or text.startswith("[^") or not text.isascii():
        return _WIDE_STATES
    return 1


def _expect_one_base(document: object) -> None:
    """Check that all references mean places in this one document, whoever comes by them."""
    waiting: list[tuple[object, bool]] = [(document, True)]
    draft = document.get("$schema") if isinstance(document, Mapping) else None
    ids = ("$id", "id") if isinstance(draft, str) and "draft-04" in draft else ("$id",)
    while waiting:
        one, is_root = waiting.pop()
        if isinstance(one, list):
            waiting += [(part, False) for part in one]
        if not isinstance(one, Mapping):
            continue
        waiting += [(part, False) for part in one.values()]
        for name in (*_FOREIGN, *(() if is_root else ids)):
            if isinstance(one.get(name), str):
                msg = f"{name} is not supported; refer to a place with $ref, as #/$defs/name"
                raise _UnboundedError(msg)


def _positions(one: Mapping[str, Any]) -> Sequence[Any]:
    """Subschemas of the first items, one each."""
    for name in _POSITIONAL:
        if isinstance(one.get(name), list):
            found: list[Any] = one[name]
            return found
    return ()


def _at_property(objects: Sequence[Mapping[str, Any]], name: str | None) -> Sequence[Any]:
    """What meets a property of this name, or one that no subschema names."""
    met: list[Any] = []
    for one in objects:
        named = _as_map(one.get("properties"))
        met += _as_map(one.get("patternProperties")).values()
        if name is not None and name in named:
            met.append(named[name])
        else:
            met += [one[rest] for rest in _OTHER_PROPERTIES if rest in one]
    return [part for part in met if _is_schema(part)]


def _at_item(objects: Sequence[Mapping[str, Any]], index: int | None) -> Sequence[Any]:
    """What meets the item of this index, or one beyond those that stand alone."""
    met: list[Any] = []
    for one in objects:
        first = _positions(one)
        if index is not None and index < len(first):
            met.append(first[index])
            met += [one["contains"]] if "contains" in one else []
        else:
            met += [one[rest] for rest in _OTHER_ITEMS if rest in one]
    return [part for part in met if _is_schema(part)]


def _own_units(one: Mapping[str, Any]) -> int:
    """What a subschema costs for each value, its own subschemas and patterns aside."""
    units = len(_as_list(one.get("required", ())))
    units += _MULTIPLE_UNITS * ("multipleOf" in one) + _OBJECT_UNITS * ("uniqueItems" in one)
    if "const" in one:
        units += _option_units(one["const"])
    options = _as_list(one.get("enum", ()))
    if not all(isinstance(option, str) for option in options):
        units += sum(map(_option_units, options))
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return units + sum(_number_units(one.get(name)) for name in bounds)


def _option_units(option: object) -> int:
    """What comparing a value with one option costs."""
    units, waiting = 0, [option]
    while waiting:
        one = waiting.pop()
        units += 1 + _number_units(one)
        units += _FRACTION_UNITS * isinstance(one, float)
        if isinstance(one, Mapping | list):
            units += _OBJECT_UNITS
            waiting += one.values() if isinstance(one, Mapping) else one
    return units


def _number_units(value: object) -> int:
    """Beyond the first: what a number of many digits costs."""
    if not isinstance(value, int):
        return 0
    words: int = value.bit_length() // _WORD_BITS
    return words * words


def _is_schema(part: object) -> bool:
    return isinstance(part, Mapping | bool)


def _as_list(part: Any) -> list[Any]:  # noqa: ANN401  # any JSON
    return list(part) if isinstance(part, list | tuple) else [part]


def _as_map(part: Any) -> Mapping[str, Any]:  # noqa: ANN401  # any JSON
    return part if isinstance(part, Mapping) else {}
