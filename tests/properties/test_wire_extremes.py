"""Every instant and number of every wire model at its extremes, through every reader.

What a decoder lets through can be carried on by every part: folded, relayed, placed, cancelled,
encoded again and read again. What it does not let through is one unreadable record.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from types import UnionType
from typing import Annotated, Any

import house
import msgspec
import pytest
from backlogs import START, incomparable_origins, placed
from consumer_records import record
from fakes import ManualClock, MemoryPublisher
from hypothesis import given
from hypothesis import strategies as st
from memory_signals import MemorySignals
from memory_summaries import MemorySummaries
from msgspec import inspect
from pydantic import TypeAdapter, ValidationError

from pop_stream.api_models.commands import Selection
from pop_stream.api_models.keys import KeyRequest
from pop_stream.api_models.pulls import OperationReport
from pop_stream.kafka.lifecycle_reader import read
from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda, routed_agenda
from pop_stream.model.api_keys import ApiKey
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import SubmissionError, UnreadableRecordError
from pop_stream.model.events import codec
from pop_stream.model.events.lifecycle import AgendaAccepted, LifecycleEvent
from pop_stream.model.events.occasions import OccasionEvent, ScheduleEvent, ScheduleState
from pop_stream.model.events.pull import DeliveryEvent, PollDemandEvent
from pop_stream.model.events.quota import UsageEvent
from pop_stream.model.events.record_splitting import readable_events
from pop_stream.model.events.rules import RuleActed, RuleState
from pop_stream.model.events.scheduling import (
    AttemptStop,
    Command,
    EmittedAgenda,
    InsightAgendasRouted,
    InsightAttemptsReported,
    QueueDescribed,
    QueueQueried,
    ReadyEvent,
    RoutedAgenda,
)
from pop_stream.model.json_types import EARLIEST_INSTANT, LATEST_INSTANT
from pop_stream.model.retry import MAX_PAUSE_S, Backoff
from pop_stream.model.schedule import Schedule
from pop_stream.model.template import TEMPLATE_CALL, TEMPLATE_RUN
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.insight_scheduler import InsightScheduler
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.schedules.keeper import ScheduleKeeper
from pop_stream.relay.relay import ordered, restart_pages, split_to_fit, translate
from pop_stream.rollup.rule_actions import RuleActions
from pop_stream.settings import Settings

INSTANTS = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "1969-12-31T23:59:59Z",
    "1970-01-01T00:00:00+14:00",
    "1970-01-01T00:00:00Z",
    "8999-12-31T23:59:59Z",
    "8999-12-31T23:59:59-23:59",
    "9000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-23:59",
]
NUMBERS = ["-1", "0", "1e-320", "1e308", "-1e308", "1e400", "2147483648", "9" * 25, "9" * 4_400]
NOW = START.timestamp()
FAR_FUTURE = datetime(8990, 1, 1, tzinfo=UTC)
AGENDA = {"id": "a", "customer_id": "acme", "operations": [{"name": "n", "type": "noop"}]}
RAW = {
    "agenda": AGENDA,
    "agendas": codec.encode(placed("a")),
    "operation": {"name": "later", "type": "noop"},
    "result": {"x": 1},
    "routed": codec.encode(placed("a", attempt=2)),
}
TEXTS = {"agenda_id": "a", "insight_id": "media", "customer_id": "acme"}


@dataclass(frozen=True)
class Wire:
    kind: Any
    decode: Any


WIRES = {
    "agenda-events": Wire(LifecycleEvent, codec.decode_lifecycle),
    "ready": Wire(ReadyEvent, codec.decode_ready),
    "insight": Wire(EmittedAgenda, codec.decode_emitted),
    "page": Wire(RoutedAgenda, codec.decode_routed),
    "controls": Wire(AttemptStop, codec.decode_stop),
    "query-replies": Wire(QueueDescribed, codec.decode_query_reply),
    "poll-demand": Wire(PollDemandEvent, codec.decode_poll_demand),
    "deliveries": Wire(DeliveryEvent, codec.decode_delivery),
    "quota-usage": Wire(UsageEvent, codec.decode_usage),
    "occasions": Wire(OccasionEvent, codec.decode_occasion),
    "schedule-events": Wire(ScheduleEvent, codec.decode_schedule_events),
    "timekeeper": Wire(ScheduleState, codec.decode_schedule_state),
    "rule-states": Wire(RuleState, codec.decode_rule_state),
    "rule-actions": Wire(RuleActed, codec.decode_rule_action),
}


def test_every_decoder_of_a_record_is_held_to_its_extremes():
    decoders = {one for name, one in vars(codec).items() if name.startswith("decode_")}
    assert decoders == {wire.decode for wire in WIRES.values()}


SCALARS = {
    inspect.DateTimeType: "2026-01-01T00:00:00Z",
    inspect.BoolType: False,
    inspect.IntType: 1,
    inspect.FloatType: 1,
}


def sample(kind: inspect.Type, name: str) -> Any:
    """A value that fits the type, with every optional field given."""
    match kind:
        case inspect.UnionType():
            return sample(next(one for one in kind.types if not _is_nothing(one)), name)
        case inspect.StructType() | inspect.DataclassType():
            return _object(kind)
        case inspect.VarTupleType() | inspect.ListType():
            return [sample(kind.item_type, name)]
        case inspect.TupleType():
            return [sample(one, name) for one in kind.item_types]
        case inspect.DictType():
            return {"0": sample(kind.value_type, name)}
        case _:
            return _scalar(kind, name)


def _scalar(kind: inspect.Type, name: str) -> Any:
    match kind:
        case inspect.Metadata():
            return sample(kind.type, name)
        case inspect.RawType() | inspect.AnyType():
            value = RAW.get(name, {"x": 1})
            return json.loads(value) if isinstance(value, bytes) else value
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StrType():
            return TEXTS.get(name, "x")
    return SCALARS[type(kind)]


def _object(kind: Any) -> Any:
    fields = {one.encode_name: sample(one.type, one.encode_name) for one in kind.fields}
    if getattr(kind, "array_like", False):
        return [*fields.values()]
    tag = getattr(kind, "tag_field", None)
    return {tag: kind.tag, **fields} if tag else fields


def _is_nothing(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all instants and numbers."""
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, inner in items:
            yield from leaves(inner, (*path, key))
    elif not isinstance(document, bool) and (
        isinstance(document, int | float) or document == "2026-01-01T00:00:00Z"
    ):
        yield path


def extremes(document: Any) -> Iterator[tuple[str, bytes]]:
    """The document with one leaf after the other at each of its extremes, as JSON."""
    for path in leaves(document):
        changed = copy.deepcopy(document)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        is_instant = isinstance(inner[path[-1]], str)
        inner[path[-1]] = "HERE"
        text = json.dumps(changed)
        for extreme in INSTANTS if is_instant else NUMBERS:
            put = f'"{extreme}"' if is_instant else extreme
            yield f"{path} = {extreme[:30]}", text.replace('"HERE"', put).encode()


def structs(kind: Any) -> list[type]:
    return [*kind.__args__] if isinstance(kind, UnionType) else [kind]


def readable(wire: Wire) -> Iterator[tuple[str, Any]]:
    """What the decoder lets through; anything but an unreadable record fails the test."""
    for struct in structs(wire.kind):
        document = sample(inspect.type_info(struct), "")
        assert wire.decode(json.dumps(document).encode()), struct
        for what, value in extremes(document):
            try:
                decoded = wire.decode(value)
            except UnreadableRecordError:
                continue
            for one in decoded if isinstance(decoded, list | tuple) else [decoded]:
                yield f"{struct.__name__}: {what}", one


def instants(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from instants(getattr(value, name))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from instants(one)
    elif isinstance(value, dict):
        yield from instants([*value.values()])


def scheduler() -> InsightScheduler:
    return InsightScheduler(Insight(id="media", aging_s=86_400.0), lambda _: Share())


def run_on(target: InsightScheduler, event: ReadyEvent) -> None:
    """Apply an event, and all that may follow it: rounds, queries, commands, publication."""
    target.apply(event, NOW)
    for now in (NOW, NOW + 1e5, NOW + 1e9):
        target.advance_to(now)
        planned = target.plan_round(now, 10)
        decision = target.decision(planned)
        assert decision is None or msgspec.json.decode(codec.encode(decision))
        query = QueueQueried(insight_id="media", query_id="q", agenda_id="a", tracked_after=-1)
        reply = target.apply(query, now).reply
        assert reply is not None
        codec.decode_query_reply(codec.encode(reply))
        for action in ("hold", "release", "cancel"):
            target.backlog.apply_command(Command(agenda_id="a", action=action), now)
        codec.decode_lifecycle(codec.encode([*target.drain_outbox().lifecycle]))


@pytest.mark.parametrize("topic", WIRES)
def test_what_is_readable_keeps_its_instants_in_range_and_can_be_written_again(topic):
    wire = WIRES[topic]
    for what, one in readable(wire):
        for at in instants(one):
            assert EARLIEST_INSTANT <= at < LATEST_INSTANT, what
            assert at.astimezone(UTC), what
        wire.decode(codec.encode(one))


def test_every_readable_lifecycle_event_is_folded_and_relayed():
    accepted = AgendaAccepted(
        agenda_id="a",
        at=START,
        insight_id="media",
        customer_id="acme",
        agenda=msgspec.Raw(json.dumps(AGENDA).encode()),
        operations=("n",),
    )
    for what, event in readable(WIRES["agenda-events"]):
        entries, _ = read(record(codec.encode(event)), now=FAR_FUTURE, signer=RecordSigner())
        folded = [one.event for one in entries if one.event is not None]
        for before in ([], [accepted]):
            summary, _ = fold_all(None, [*before, *folded, *folded])
            if summary is not None:
                assert 0 <= summary.percent <= 100, what
                assert summary.lease_until is None or summary.lease_until.tzinfo, what
                assert max(summary.attempt, summary.lease_ms) < 2**31, what
        pages = restart_pages(
            (one, incomparable_origins(1)[0]) for one in folded if hasattr(one, "routed")
        )
        for report in [*ordered(translate(folded), []), *pages]:
            for part in split_to_fit(report):
                for again in codec.decode_ready(codec.encode(part)):
                    run_on(scheduler(), again)


def test_every_readable_event_of_the_scheduler_is_applied():
    for _, event in readable(WIRES["ready"]):
        usable, reasons = readable_events(codec.encode(event))
        assert len(usable) + len(reasons) == 1
        for one in usable:
            run_on(scheduler(), one)
            with_agenda = scheduler()
            with_agenda.place([placed("a")], NOW)
            run_on(with_agenda, one)


def test_every_readable_state_and_event_of_a_schedule_is_carried_on():
    submission = {"customer_id": "acme", "operations": AGENDA["operations"]}
    schedules = [
        Schedule.model_validate({"id": "x", "submission": submission, **one})
        for one in (
            {"trigger": {"every_s": 3_600}, "overlap": "buffer_all"},
            {"trigger": {"cron": "@daily"}, "timezone": "Pacific/Apia", "jitter_s": 86_400},
            {"trigger": {"rrule": "FREQ=MONTHLY"}, "start": "2026-01-31T00:00:00Z"},
        )
    ]
    events = [one for _, one in readable(WIRES["occasions"])]
    for schedule, (what, state) in product(schedules, readable(WIRES["timekeeper"])):
        keeper = ScheduleKeeper()
        keeper.load([state])
        made = [*keeper.define({"x": schedule}, START), keeper.fire(START)]
        made += [keeper.apply(one, offset) for offset, one in enumerate(events, 2)]
        for row in (row for firing in made for row in firing.rows.values() if row):
            assert codec.decode_schedule_state(codec.encode(row)) == row, what
        for one in (one for firing in made for one in firing.occurrences):
            assert one.body()["series"], what


async def test_every_readable_action_of_a_rule_is_done():
    agendas, signals = MemorySummaries(), MemorySignals()
    actions = RuleActions(Settings(), agendas, signals, MemoryPublisher(), ManualClock(START))
    for what, event in readable(WIRES["rule-actions"]):
        assert await actions.do(event) in {0, 1}, what


def test_every_readable_routed_agenda_is_placed_and_can_be_cancelled():
    for what, routed in readable(WIRES["page"]):
        target = scheduler()
        target.apply(
            InsightAgendasRouted(
                insight_id="media",
                agendas=(msgspec.Raw(codec.encode(routed)),),
                origins=tuple(incomparable_origins(1)),
            ),
            NOW,
        )
        assert target.backlog.position_of("a") is not None, what
        run_on(target, InsightAttemptsReported(insight_id="media"))


@pytest.mark.parametrize("field", ["not_before", "expires_at"])
@pytest.mark.parametrize("instant", INSTANTS)
def test_an_agenda_that_is_accepted_is_placed(field, instant):
    try:
        agenda = parse_agenda({**AGENDA, field: instant})
    except SubmissionError as error:
        (issue,) = error.issues
        assert (issue.field, issue.value) == (field, instant)
        assert "1970" in issue.message
        assert "9000" in issue.message
        return
    routed = routed_agenda(agenda, encode_agenda(agenda), agenda_id="a", accepted_at=START)
    codec.decode_routed(codec.encode(routed))
    target = scheduler()
    target.place([routed], NOW)
    run_on(target, InsightAttemptsReported(insight_id="media"))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["priority", "rank", "cost_s", "max_attempts"])
def test_numbers_of_an_agenda_are_refused_or_placed(name, number):
    text = json.dumps({**AGENDA, name: "HERE"}).replace('"HERE"', number)
    try:
        agenda = parse_agenda(text)
    except SubmissionError:
        return
    routed = routed_agenda(agenda, encode_agenda(agenda), agenda_id="a", accepted_at=START)
    target = scheduler()
    target.place([codec.decode_routed(codec.encode(routed))], NOW)
    run_on(target, InsightAttemptsReported(insight_id="media"))


REQUESTS = (Agenda, ApiKey, KeyRequest, OperationReport, Selection, TEMPLATE_CALL, TEMPLATE_RUN)
"""Every model of something from outside that has an instant."""


def instant_fields() -> list[tuple[str, Any]]:
    return [
        (f"{model.__name__}.{name}", Annotated[info.annotation, *info.metadata, "field"])
        for model in REQUESTS
        for name, info in model.model_fields.items()
        if "AwareDatetime" in repr(info.annotation)
    ]


@pytest.mark.parametrize(("field", "kind"), instant_fields())
def test_every_instant_of_a_request_or_a_definition_has_the_same_range(field, kind):
    adapter = TypeAdapter(kind)
    for instant in INSTANTS:
        if EARLIEST_INSTANT <= datetime.fromisoformat(instant) < LATEST_INSTANT:
            assert adapter.validate_json(json.dumps(instant), strict=True), field
        else:
            with pytest.raises(ValidationError, match="9000-01-01"):
                adapter.validate_json(json.dumps(instant), strict=True)


def test_only_models_from_outside_with_the_range_have_instants():
    assert {field.partition(".")[0] for field, _ in instant_fields()} == {
        one.__name__ for one in REQUESTS
    }
    users = {path for path, text in house.sources().items() if "AwareDatetime" in text}
    assert users == {"model/json_types.py"}


@given(
    first_s=st.floats(),
    factor=st.floats(),
    most_s=st.floats(),
    jitter=st.floats(),
    failures=st.integers(1, 2**31),
)
def test_a_pause_lies_between_nothing_and_a_week_whatever_a_backoff_holds(
    first_s, factor, most_s, jitter, failures
):
    pause_s = Backoff(first_s, factor, most_s, jitter).pause_s(failures, seed="a")
    assert 0 <= pause_s <= MAX_PAUSE_S
