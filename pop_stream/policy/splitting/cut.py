"""The cut: which child payloads a payload is divided into, and in which order.

A payload is first looked through once, which finds every fault and how many children there
are; the children are then made one at a time. Both are pure: the same payload, template and
resolvers give the same children in the same order, so the n-th child has a stable id.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.split import DAY, Split
from pop_stream.model.trigger import zone_of
from pop_stream.model.validation import shorten
from pop_stream.policy.splitting.periods import BUILT_IN_PERIODS, PeriodRequest, PeriodResolvers

MAX_STEPS: Final = 200_000
"""Most names of nested attributes that are looked at for one cut: it bounds its time."""

SCHEMA: Final = "split_schema"
PERIOD: Final = "period"
NOMINAL: Final = "nominal"
DAYS: Final = "date_list"
"""Fields of a payload: the schema to cut by, the period, the day against which it is resolved,
and where a child finds its days."""

_DIRECTIVE: Final = re.compile(r"isolate_(.+)|max_(.+)_per_batch")
_SCALARS: Final = (str, int, float)

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One object of the payload, and where it stands in it."""

    content: Payload
    path: str


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A child: what is left of the layers, the outermost first."""

    layers: tuple[_Layer, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class _Kept:
    """An attribute that each child has whole."""

    name: str
    value: Any
    below: "_Node"

    @property
    def count(self) -> int:
        return self.below.count


@dataclass(frozen=True, slots=True)
class _Batches:
    """Values of an attribute, so many to a child."""

    name: str
    values: Sequence[Any]
    size: int
    below: "_Node"

    @property
    def count(self) -> int:
        return -(-len(self.values) // self.size) * self.below.count


@dataclass(frozen=True, slots=True)
class _Branches:
    """Values of an attribute that have a part of the payload of their own each."""

    name: str
    values: Sequence[tuple[str, "_Node"]]
    count: int


_Node = _Leaf | _Kept | _Batches | _Branches


@dataclass(frozen=True, slots=True)
class _Planned:
    """A part of the payload, looked through.

    Attributes:
        is_cut: Whether a directive was met that cuts something.
        issues: What is wrong if it is cut; of no account if all is kept whole.
    """

    node: _Node
    is_cut: bool = False
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """The children of one payload.

    Attributes:
        count: How many there are, at least 1.
    """

    count: int
    _root: _Node
    _dropped: frozenset[str]

    def payloads(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """The children's payloads in order; those before `start` are passed over cheaply."""
        return self._made(self._root, {}, start) if start < self.count else iter(())

    def _made(self, node: _Node, chosen: dict[str, Any], skip: int) -> Iterator[dict[str, Any]]:
        match node:
            case _Leaf():
                yield self._child(node, chosen)
            case _Kept():
                yield from self._made(node.below, {**chosen, node.name: node.value}, skip)
            case _Batches():
                first, skip = divmod(skip, node.below.count)
                for at in range(first * node.size, len(node.values), node.size):
                    batch = [*node.values[at : at + node.size]]
                    yield from self._made(node.below, {**chosen, node.name: batch}, skip)
                    skip = 0
            case _Branches():
                for value, below in node.values:
                    if skip >= below.count:
                        skip -= below.count
                        continue
                    yield from self._made(below, {**chosen, node.name: [value]}, skip)
                    skip = 0

    def _child(self, leaf: _Leaf, chosen: Payload) -> dict[str, Any]:
        left = {
            key: value
            for layer in leaf.layers
            for key, value in layer.content.items()
            if key not in self._dropped
        }
        return {**left, **chosen}


def cut(payload: object, split: Split, *, resolvers: PeriodResolvers = BUILT_IN_PERIODS) -> Cut:
    """Divide a payload as its own directives say.

    Cost: in proportion to the payload, and bounded by `MAX_STEPS`; no child is made yet.

    Args:
        payload: JSON, an object.
        split: Of the template.
        resolvers: Of periods.

    Raises:
        SubmissionError: With the field, its value and a remedy, if the payload cannot be
            divided, or comes to more children than the template allows.
    """
    if not isinstance(payload, Mapping):
        message = "a payload that is divided is an object; wrap it in one"
        raise SubmissionError([Issue("payload", shorten(payload), message)])
    attributes = _schema(payload, split)
    directives = frozenset(name for one in (*attributes, DAY) for name in _directives(one))
    _check_directives(payload, attributes, directives)
    root = _Layer(payload, "payload")
    has_days = payload.get(PERIOD) is not None or DAYS in payload
    planner = _Planner(attributes, frozenset([DAYS] if has_days else ()))
    planned = planner.plan((root,), attributes)
    if issues := (*planner.issues, *planned.issues):
        raise SubmissionError(issues[: SubmissionError.MAX_ISSUES])
    node = _with_days(root, planned.node, planner, split, resolvers)
    if node.count > split.max_children:
        message = (
            f"the template allows {split.max_children:,}; cut less finely, divide the payload, "
            "or raise its split.max_children"
        )
        raise SubmissionError([Issue("payload", f"{node.count:,} children", message)])
    own = {SCHEMA, PERIOD, *directives, *(name for one in attributes for name in _names(one))}
    return Cut(node.count, node, frozenset(own))


def _schema(payload: Payload, split: Split) -> tuple[str, ...]:
    if SCHEMA not in payload:
        return split.attributes
    named = payload[SCHEMA]
    if isinstance(named, str) and named in split.schemas:
        return split.schemas[named]
    if named == "default":
        return split.attributes
    known = ", ".join(("default", *sorted(split.schemas)))
    message = f"the template has no such schema; name one of: {known}"
    raise SubmissionError([Issue(f"payload.{SCHEMA}", shorten(named), message)])


def _check_directives(
    payload: Payload, attributes: Sequence[str], known: frozenset[str]
) -> None:
    """A directive about nothing is a slip of the pen, and would leave the payload whole."""
    for key, value in payload.items():
        if key not in known and _DIRECTIVE.fullmatch(key):
            message = (
                f"is about no attribute of the schema ({', '.join((*attributes, DAY))}); "
                "correct it, or rename it if it is data"
            )
            raise SubmissionError([Issue(f"payload.{shorten(key)}", shorten(value), message)])


def _names(attribute: str) -> tuple[str, str]:
    """The attribute as payloads may name it: singular and plural."""
    return attribute, f"{attribute}s"


def _directives(attribute: str) -> Iterator[str]:
    for name in _names(attribute):
        yield f"isolate_{name}"
        yield f"max_{name}_per_batch"


def _with_days(
    root: _Layer, below: _Node, planner: "_Planner", split: Split, resolvers: PeriodResolvers
) -> _Node:
    """The cut along days, which is the outermost."""
    content = root.content
    if content.get(PERIOD) is None:
        days = content.get(DAYS)
        if DAYS not in content or not isinstance(days, list | tuple) or not days:
            return below
        values: list[Any] = [*days]
    elif DAYS in content:
        message = f"stands beside {PERIOD}, which makes one; leave one of the two out"
        raise SubmissionError([Issue(f"payload.{DAYS}", shorten(content[DAYS]), message)])
    else:
        asked = PeriodRequest(_nominal(content, split), holidays=frozenset(split.holidays))
        field_name = f"payload.{PERIOD}"
        found = resolvers.days(content[PERIOD], asked, field=field_name)
        values = [day.isoformat() for day in found]
    size = planner.batch_size((root,), DAY)
    if planner.issues:
        raise SubmissionError(planner.issues[: SubmissionError.MAX_ISSUES])
    if size is None:
        return _Kept(DAYS, values, below)
    return _Batches(DAYS, values, size, below)


def _nominal(content: Payload, split: Split) -> date:
    """The day that counts as today.

    Raises:
        SubmissionError: If the payload does not say.
    """
    given = content.get(NOMINAL)
    try:
        if isinstance(given, str) and len(given) == len("2026-11-24"):
            return date.fromisoformat(given)
        if isinstance(given, str):
            instant = datetime.fromisoformat(given)
            if instant.tzinfo is not None:
                zone = zone_of(split.timezone) if split.timezone else instant.tzinfo
                return instant.astimezone(zone).date()
    except (ValueError, OverflowError):
        pass
    message = (
        f"{PERIOD} is resolved against it: give a day as in 2026-11-24, or an instant with its "
        "offset; a schedule gives @<pop.occasion::/date>"
    )
    shown = "nothing" if given is None else shorten(given)
    raise SubmissionError([Issue(f"payload.{NOMINAL}", shown, message)])


@dataclass(frozen=True, slots=True)
class _Found:
    """A field of a payload, and where it stands; `name` is how it is spelled there."""

    name: str
    value: Any
    path: str


class _Planner:
    """Looks a payload through, once.

    Args:
        order: All attributes of the schema.
        reserved: Fields of children that no nested object may have.

    Attributes:
        issues: Of directives, which are wrong whether they cut or not.
    """

    def __init__(self, order: tuple[str, ...], reserved: frozenset[str]) -> None:
        self.issues: list[Issue] = []
        self._order = order
        self._reserved = reserved
        self._steps = 0
        self._flat: dict[int, list[Any] | None] = {}

    def plan(self, layers: tuple[_Layer, ...], attributes: tuple[str, ...]) -> _Planned:
        """The cut of what the layers have, along the attributes in order."""
        self._step()
        if not attributes:
            return _Planned(_Leaf(layers))
        attribute, below = attributes[0], attributes[1:]
        found = self._find(layers, _names(attribute))
        if found is None:
            return self.plan(layers, below)
        size = None if found.value in _EMPTY else self.batch_size(layers, attribute)
        rest = self.plan(layers, below)
        if _is_nested(found.value):
            branches = self._branches(layers, attributes, found)
            # If only what stands beside it is cut, values that have their own would be in
            # several children.
            if size is not None or branches.is_cut or rest.is_cut:
                return _Planned(branches.node, is_cut=True, issues=branches.issues)
        if size is None:
            return _Planned(self._kept(found, attribute, rest.node), rest.is_cut, rest.issues)
        values = self._flat_values(found.value)
        issues = rest.issues if values else (*rest.issues, _not_flat(found, attribute))
        node = _Batches(_names(attribute)[1], values or [None], size, rest.node)
        return _Planned(node, is_cut=True, issues=issues)

    def batch_size(self, layers: Sequence[_Layer], attribute: str) -> int | None:
        """How many values go to a child; None if the attribute is not to be cut."""
        singular, plural = _names(attribute)
        isolate = self._find(layers, (f"isolate_{singular}", f"isolate_{plural}"))
        most = self._find(layers, (f"max_{singular}_per_batch", f"max_{plural}_per_batch"))
        if isolate is not None and not isinstance(isolate.value, bool):
            self._refuse(isolate, "must be true or false")
        if most is not None:
            if type(most.value) is int and most.value >= 1:
                return most.value
            self._refuse(most, "must be a whole number, at least 1")
        return 1 if isolate is not None and isolate.value is True else None

    def _branches(
        self, layers: tuple[_Layer, ...], attributes: tuple[str, ...], found: _Found
    ) -> _Planned:
        values: list[tuple[str, _Node]] = []
        issues: list[Issue] = []
        is_cut, count = False, 0
        outer = self._order[: len(self._order) - len(attributes) + 1]
        taken = self._reserved.union(*map(_names, outer))
        for name, content in _nested_values(found.value):
            inner, where = layers, f"{found.path}.{shorten(name)}"
            if isinstance(content, Mapping):
                inner = (*layers, _Layer(content, where))
                issues += _overlaps(inner[-1], taken)
            elif content is not None:
                message = f"must be an object or null, as a value of {attributes[0]}"
                issues.append(Issue(where, shorten(content), message))
            planned = self.plan(inner, attributes[1:])
            values.append((name, planned.node))
            issues += planned.issues
            is_cut |= planned.is_cut
            count += planned.node.count
            del issues[SubmissionError.MAX_ISSUES :]
        node = _Branches(_names(attributes[0])[1], values, count)
        return _Planned(node, is_cut, tuple(issues))

    def _kept(self, found: _Found, attribute: str, below: _Node) -> _Kept:
        """Flat values as a list under the plural name, and anything else as it is."""
        is_list = isinstance(found.value, Mapping | list | tuple) and found.value
        values = self._flat_values(found.value) if is_list else None
        if values is None:
            return _Kept(found.name, found.value, below)
        return _Kept(_names(attribute)[1], values, below)

    def _flat_values(self, value: Any) -> list[Any] | None:  # noqa: ANN401  # JSON
        """The values of a flat attribute; None if it is not flat. A list is read once."""
        if isinstance(value, _SCALARS):
            return [value]
        if id(value) not in self._flat:
            values = [*value] if isinstance(value, Mapping | list | tuple) else []
            is_flat = all(isinstance(one, _SCALARS) for one in values)
            if isinstance(value, Mapping):
                is_flat = all(one is None for one in value.values())
            self._flat[id(value)] = values if is_flat and values else None
        return self._flat[id(value)]

    def _find(self, layers: Sequence[_Layer], names: tuple[str, str]) -> _Found | None:
        """What the innermost layer that has either name has under it."""
        for layer in reversed(layers):
            given = [name for name in names if name in layer.content]
            if given:
                found = _Found(given[0], layer.content[given[0]], f"{layer.path}.{given[0]}")
                if len(given) > 1:
                    self._refuse(found, f"stands beside {given[1]}; leave one of the two out")
                return found
        return None

    def _refuse(self, found: _Found, message: str) -> None:
        issue = Issue(found.path, shorten(found.value), message)
        if issue not in self.issues and len(self.issues) < SubmissionError.MAX_ISSUES:
            self.issues.append(issue)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            message = (
                f"has more than {MAX_STEPS:,} nested values to look at; divide the payload, or "
                "nest less deeply"
            )
            raise SubmissionError([Issue("payload", "too many values", message)])


_EMPTY: Final[tuple[Any, ...]] = (None, [], {})


def _is_nested(value: object) -> bool:
    """Whether values of an attribute have parts of the payload of their own."""
    if isinstance(value, Mapping):
        return any(one is not None for one in value.values())
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(one, Mapping) for one in value)
    )


def _nested_values(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # JSON
    """The names and what belongs to each; of a list of objects, those of each in turn."""
    for one in [value] if isinstance(value, Mapping) else value:
        yield from one.items()


def _overlaps(layer: _Layer, taken: frozenset[str]) -> Iterator[Issue]:
    for name in layer.content.keys() & taken:
        message = "stands inside a value of the same attribute; rename it, or move it out"
        yield Issue(f"{layer.path}.{name}", shorten(layer.content[name]), message)


def _not_flat(found: _Found, attribute: str) -> Issue:
    message = (
        "to be cut it must be a list of texts and numbers, an object whose values are null, or "
        f"one whose values are objects; change it, or do not isolate {attribute}"
    )
    return Issue(found.path, shorten(found.value), message)
