"""An agenda: a customer's unit of work, a small DAG of operations, valid by construction.

Also the form in which it goes on to the scheduler: `routed_agenda` is the one place that says
which fields matter there.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Raw
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from pop_stream.model import references
from pop_stream.model.dedupe import Dedupe
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.events.base import MAX_RANK, DedupeRule
from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.model.ids import (
    ID_LENGTH,
    ID_PATTERN,
    OPERATION_NAME_PATTERN,
    OWN_ID_LENGTH,
    OWN_ID_PATTERN,
)
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.model.retry import MAX_DEFERRAL_S, Backoff
from pop_stream.model.series import Series
from pop_stream.model.tenancy import foreign_id_issue
from pop_stream.model.trace import Trace
from pop_stream.model.validation import issues_of, legacy_param_issues, shorten, without_nul
from pop_stream.model.wait_for import MAX_CONDITIONS, Condition, OnTimeout

MAX_OPERATIONS: Final = 10_000
"""Most operations of one agenda."""

MOST_URGENT, DEFAULT_PRIORITY = 1, 5
"""The first of priorities, and that of an agenda that names none."""

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=ID_LENGTH)]
OwnId = Annotated[str, StringConstraints(pattern=OWN_ID_PATTERN, max_length=OWN_ID_LENGTH)]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=OPERATION_NAME_PATTERN)
]


CallbackUrl = Annotated[
    str, StringConstraints(max_length=2_000, pattern=r"^https?://[^\s/?#@]+([/?#]\S*)?$")
]


CallbackFormat = Literal["json", "cloudevents"]
"""As what an end is notified: as an object of our own, or as a CloudEvent that holds it."""

WaitWithin = Annotated[float, Field(gt=0, le=MAX_DEFERRAL_S, allow_inf_nan=False)]


class Operation(BaseModel):
    """One node of an agenda's DAG."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Unique within the agenda, ignoring case.")
    type: Name = Field(description="Chooses the handler, and takes part in placement.")
    payload: JsonValue = Field(
        default=None,
        description="The handler's input; may hold references: @<fetch.out::/size>.",
    )
    depends_on: tuple[Name, ...] = Field(
        default=(), description="Operations that must succeed first, besides referred ones."
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="Settings for the handler and for placement."
    )
    timeout_s: Annotated[float, Field(gt=0, le=604_800)] | None = Field(
        default=None, description="One try that takes longer fails, and may be tried again."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100), WHOLE_NUMBER] = Field(
        default=1, description="Tries of this operation within one attempt at the agenda."
    )
    backoff: Backoff | None = Field(
        default=None, description="Between tries of this operation; 1 s, doubling, if unset."
    )
    wait_within_s: WaitWithin | None = Field(
        default=None,
        description="How long it may wait for something; else its agenda's.",
    )


class TemplateRef(BaseModel):
    """Which template an agenda was made from, and what it was like then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: OwnId
    version: Annotated[
        int, Field(ge=0, description="0 if the template has no version."), WHOLE_NUMBER
    ]


class Agenda(BaseModel):
    """A submission; `parse_agenda` also proves its names, dependencies and references sound."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: OwnId | None = Field(
        default=None,
        description="Identity for ever, among its customer's own if that one chose it. "
        "Without it the record's key is used, else one is made.",
    )
    customer_id: Id = Field(description="The tenant whose share this work counts against.")
    title: Annotated[str, StringConstraints(max_length=500)] = Field(default="")
    link_id: Id | None = Field(
        default=None, description="Groups agendas; summaries are read by it."
    )
    params: dict[str, JsonValue] = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=1, le=9), WHOLE_NUMBER] = Field(
        default=DEFAULT_PRIORITY,
        description="1 is most urgent, 9 least; orders a customer's own work only.",
    )
    rank: Annotated[int, Field(ge=0, le=MAX_RANK), WHOLE_NUMBER] = Field(
        default=0, description="Among a customer's agendas of one priority, least first."
    )
    fairness_key: Annotated[
        str, StringConstraints(max_length=ID_LENGTH, pattern=f"^$|{ID_PATTERN}")
    ] = Field(
        default="", description="A customer's agendas share its turns equally between keys."
    )
    batch_key: Annotated[
        str, StringConstraints(max_length=ID_LENGTH, pattern=f"^$|{ID_PATTERN}")
    ] = Field(
        default="", description="One that is chosen may bring others with the same key along."
    )
    cost_s: Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Expected worker-seconds. Without it, learned per operation type.",
    )
    not_before: InstantField | None = Field(
        default=None, description="It is not started earlier."
    )
    expires_at: InstantField | None = Field(
        default=None, description="Deadline: not ended by then, it is stopped and expires."
    )
    hold: bool = Field(default=False, description="It waits until it is released.")
    hold_reason: Annotated[str, StringConstraints(max_length=500)] = Field(
        default="", description="With hold: why, for whoever asks."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100), WHOLE_NUMBER] | None = Field(
        default=None, description="Attempts before a failure is final; else its insight's."
    )
    backoff: Backoff | None = Field(
        default=None, description="Between attempts; else its insight's."
    )
    template: TemplateRef | None = Field(
        default=None, description="The template it was made from; set when one is run."
    )
    wait_for: tuple[Condition, ...] = Field(
        default=(),
        max_length=MAX_CONDITIONS,
        description="It is held until all of these are met.",
    )
    wait_within_s: WaitWithin | None = Field(
        default=None,
        description="How long it, and each of its operations, may wait; a week if unset.",
    )
    on_timeout: OnTimeout = Field(
        default="fail",
        description="What becomes of it if what it waits for does not come in time.",
    )
    callback_url: CallbackUrl | None = Field(
        default=None, description="Notified, signed, how it ended; else its customer's."
    )
    callback_format: CallbackFormat | None = Field(
        default=None, description="As what that is sent; else as its customer says."
    )
    trace: Trace | None = Field(
        default=None, description="Where it came from; set from the headers it came with."
    )
    series: Series | None = Field(default=None, description="Once past it, it is cancelled.")
    parent_id: OwnId | None = Field(
        default=None, description="The agenda that submitted it, if one did."
    )
    dedupe: Dedupe | None = Field(
        default=None, description="Of what it is a duplicate, and what becomes of it then."
    )
    operations: tuple[Operation, ...] = Field(min_length=1, max_length=MAX_OPERATIONS)


def dependencies(operation: Operation) -> frozenset[str]:
    """Names of the operations that must succeed before this one may start."""
    found = references.find(operation.payload)
    if not found:
        return frozenset(operation.depends_on)
    referred = (reference.operation for reference in found)
    return frozenset(operation.depends_on).union(name for name in referred if name)


def plan(operations: tuple[Operation, ...]) -> TopologicalSorter[str]:
    """The DAG, ready to hand out runnable operations.

    Raises:
        CycleError: Never for a valid agenda.
    """
    sorter = TopologicalSorter({one.name: dependencies(one) for one in operations})
    sorter.prepare()
    return sorter


def parse_agenda(data: object, *, is_accepted: bool = False) -> Agenda:
    """Validate one agenda given as JSON text, bytes or already decoded.

    Args:
        data: The agenda.
        is_accepted: Another part has accepted it, of another version perhaps: fields that
            this one does not know are left aside instead of refused, and "3" may stand for 3.

    Raises:
        SubmissionError: With one issue per fault, naming field, value and remedy.
    """
    try:
        text = without_nul(_as_text(data), document="agenda")
        _check_outline(text)
        extra: Literal["ignore"] | None = "ignore" if is_accepted else None
        agenda = _AGENDA.validate_json(text, extra=extra, strict=not is_accepted)
        _STRICT.decode(text)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="agenda")) from None
    except msgspec.DecodeError as error:
        raise SubmissionError([Issue("agenda", "a number", str(error))]) from None
    fault = (
        foreign_id_issue(agenda.id, agenda.customer_id)
        or _deadline_issue(agenda)
        or (None if is_accepted else _wait_issue(agenda))
    )
    if fault:
        raise SubmissionError([fault])
    if agenda.dedupe is not None and agenda.dedupe.fields:
        agenda.dedupe.check(_AGENDA.dump_python(agenda, mode="json"))
    of_operations = (one.params for one in agenda.operations)
    if not is_accepted and (moved := [*legacy_param_issues(agenda.params, of_operations)]):
        raise SubmissionError(moved)
    # Cut short while found: thousands of faults in one agenda must not hold up a reader.
    if faults := [*islice(_graph_issues(agenda.operations), SubmissionError.MAX_ISSUES)]:
        raise SubmissionError(faults)
    return agenda


def encode_agenda(agenda: Agenda) -> bytes:
    """The agenda as JSON, without fields left at their defaults."""
    return _AGENDA.dump_json(agenda, exclude_defaults=True)


class _AgendaOutline(msgspec.Struct):
    operations: list[msgspec.Raw] = msgspec.field(default_factory=list)


_AGENDA: Final = TypeAdapter(Agenda)
_OUTLINE: Final = msgspec.json.Decoder(_AgendaOutline)
_OUTLINE_CHECK_BYTES: Final = 64 * 1024
_STRICT: Final = msgspec.json.Decoder()
"""Refuses what pydantic lets pass and JSON cannot carry on: NaN, and numbers out of range."""


def _graph_issues(operations: tuple[Operation, ...]) -> Iterator[Issue]:
    first = operations[0]
    if len(operations) == 1 and not first.depends_on and not references.find(first.payload):
        return  # nothing could be wrong with it, and most agendas are so
    names = {operation.name for operation in operations}
    yield from _name_issues(operations)
    for index, operation in enumerate(operations):
        yield from _dependency_issues(index, operation, names)
    if not any(map(dependencies, operations)):
        return
    try:
        plan(operations)
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        yield Issue(
            "operations",
            shorten(path),
            "these operations wait for each other; remove one dependency",
        )


def _deadline_issue(agenda: Agenda) -> Issue | None:
    not_before, expires_at = agenda.not_before, agenda.expires_at
    if not_before is None or expires_at is None or not_before < expires_at:
        return None
    remedy = f"must be later than not_before, {not_before.isoformat()}"
    return Issue("expires_at", expires_at.isoformat(), remedy)


def _wait_issue(agenda: Agenda) -> Issue | None:
    if agenda.wait_for and agenda.hold:
        return Issue("hold", "true", "leave it out: wait_for holds the agenda already")
    if not agenda.wait_for and agenda.on_timeout != "fail":
        return Issue("on_timeout", agenda.on_timeout, "needs wait_for, or leave it out")
    for index, one in enumerate(agenda.wait_for):
        if one.agenda is not None and one.agenda == agenda.id:
            return Issue(f"wait_for[{index}].agenda", one.agenda, "waits for itself")
    return None


def _name_issues(operations: tuple[Operation, ...]) -> Iterator[Issue]:
    seen: dict[str, int] = {}
    for index, operation in enumerate(operations):
        first = seen.setdefault(operation.name.casefold(), index)
        if first != index:
            yield Issue(
                f"operations[{index}].name",
                operation.name,
                f"taken by operations[{first}]; names are unique, ignoring case",
            )


def _dependency_issues(index: int, operation: Operation, names: set[str]) -> Iterator[Issue]:
    for position, name in enumerate(operation.depends_on):
        if name not in names:
            yield Issue(
                f"operations[{index}].depends_on[{position}]",
                name,
                f"no operation of this agenda; name one of: {_some(names)}",
            )
    for reference in references.find(operation.payload):
        if reference.name not in references.BUILT_IN_NAMES and reference.operation not in names:
            yield Issue(
                f"operations[{index}].payload",
                shorten(f"@<{reference.name}>"),
                "refers neither to the output (<operation>.out) of an operation of this "
                f"agenda ({_some(names)}) nor to one of "
                f"{', '.join(sorted(references.BUILT_IN_NAMES))}",
            )


def _check_outline(text: bytes | bytearray | str) -> None:
    """Refuse too many operations before each of them is looked at, for time's sake."""
    if len(text) < _OUTLINE_CHECK_BYTES:
        return
    try:
        count = len(_OUTLINE.decode(text).operations)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return  # pydantic says it better
    if count > MAX_OPERATIONS:
        fault = Issue("operations", f"{count} operations", f"at most {MAX_OPERATIONS} fit")
        raise SubmissionError([fault])


def _as_text(data: object) -> bytes | bytearray | str:
    """Text as it is; what is decoded already, as text again: one set of rules for both."""
    if isinstance(data, bytes | bytearray | str):
        return data
    try:
        return json.dumps(data)
    except (TypeError, ValueError, RecursionError):
        fault = Issue("agenda", type(data).__name__, "is not a JSON document of sane depth")
        raise SubmissionError([fault]) from None


def _some(names: set[str], most: int = 8) -> str:
    shown = sorted(names)[:most]
    return ", ".join(shown) + (", …" if len(names) > most else "")


def routed_agenda(
    agenda: Agenda, body: bytes | Raw, *, agenda_id: str, accepted_at: datetime
) -> RoutedAgenda:
    """The agenda for its first attempt; replace what is different for a later one.

    Args:
        agenda: Sound. Remove its series from what is placed again: it would be dropped.
        body: The same as JSON. Pullers get it without `callback_url`, which may contain a
            secret of the customer's, while an insight's pullers are its owner's.
        agenda_id: Its own, or the one it was given.
        accepted_at: From when on it waits.
    """
    rule, not_before = dedupe_rule(agenda), agenda.not_before
    if rule is not None and rule.debounce_s:
        quiet = accepted_at + timedelta(seconds=rule.debounce_s)
        not_before = max(quiet, not_before or quiet)
    return RoutedAgenda(
        agenda_id=agenda_id,
        customer_id=agenda.customer_id,
        accepted_at=accepted_at,
        agenda=Raw(body) if agenda.callback_url is None else _without_callback(body),
        priority=agenda.priority,
        rank=agenda.rank,
        fairness_key=agenda.fairness_key,
        batch_key=agenda.batch_key,
        operation_types=tuple(one.type for one in agenda.operations),
        cost_s=agenda.cost_s,
        not_before=not_before,
        expires_at=agenda.expires_at,
        held=agenda.hold or bool(agenda.wait_for),
        held_reason=agenda.hold_reason if agenda.hold else "",
        max_attempts=agenda.max_attempts,
        backoff=agenda.backoff,
        series=agenda.series.wire if agenda.series else None,
        dedupe=rule,
    )


def dedupe_rule(agenda: Agenda) -> DedupeRule | None:
    """What the scheduler gets of the agenda's `dedupe`; None if it has none."""
    if agenda.dedupe is None:
        return None
    document = _AGENDA.dump_python(agenda, mode="json") if agenda.dedupe.fields else None
    return agenda.dedupe.rule(agenda.customer_id, document)


def _without_callback(body: bytes | Raw) -> Raw:
    parts = msgspec.json.decode(body, type=dict[str, Raw])
    parts.pop("callback_url", None)
    return Raw(msgspec.json.encode(parts))
