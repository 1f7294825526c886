"""W3C trace context and the correlation id, from a request to a handler."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import structlog
from api_fakes import agenda, open_api
from consumer_records import record
from puller_fakes import emitted, run_context

from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import SubmissionError
from pop_stream.model.trace import Trace, parent, state
from pop_stream.puller.execution.agenda_run import AgendaRun
from pop_stream.puller.handlers.registry import Handlers

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PARENT, PARENT),
        (f" {PARENT} ", PARENT),
        (f"cc-{ID}-{SPAN}-01", PARENT),
        (f"cc-{ID}-{SPAN}-01-what-the-future-holds", PARENT),
        (f"00-{ID}-{SPAN}-01-more", None),
        (f"ff-{ID}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{ID}-{'0' * 16}-01", None),
        (f"00-{ID.upper()}-{SPAN}-01", None),
        (f"00-{ID}-{SPAN}", None),
        (f"{PARENT}\nforged", None),
        ("", None),
    ],
)
def test_a_traceparent_is_taken_only_as_the_standard_has_it(text, kept):
    assert parent(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"),
        ("a=1 , b=2,,", "a=1,b=2"),
        ("fw529a3039@dt=FfffffeQ", "fw529a3039@dt=FfffffeQ"),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a", None),
        ("a=\x01", None),
        ("a=1=2", None),
        (",".join(f"k{n}=1" for n in range(33)), None),
        ("", None),
    ],
)
def test_a_tracestate_is_taken_only_as_the_standard_has_it(text, kept):
    assert state(text) == kept


def test_what_is_malformed_counts_as_absent():
    assert Trace.of({"traceparent": "nonsense", "tracestate": "a=1"}) is None
    assert Trace.of({"tracestate": "a=1"}) is None
    got = {"traceparent": PARENT, "tracestate": "A=1", "x-correlation-id": "a b"}
    assert Trace.of(got) == Trace(traceparent=PARENT)


@pytest.mark.parametrize("text", ["a", "a=1,a=2", "A=1", "a=1 , b=2", ""])
def test_a_tracestate_that_is_not_as_the_standard_has_it_is_refused(text):
    with pytest.raises(ValueError, match="must be a W3C tracestate"):
        Trace(traceparent=PARENT, tracestate=text)
    assert Trace(traceparent=PARENT, tracestate="a=1,b=2").tracestate == "a=1,b=2"


def test_an_agenda_brings_a_sound_trace_or_is_refused():
    with pytest.raises(SubmissionError, match="traceparent"):
        parse_agenda(agenda(trace={"traceparent": "00-1-2-3"}))
    sent = agenda(trace={"traceparent": PARENT, "tracestate": "a=1", "correlation_id": "c"})
    trace = parse_agenda(encode_agenda(parse_agenda(sent))).trace
    assert trace is not None
    assert trace.trace_id == ID
    assert trace.headers == {
        "traceparent": PARENT,
        "tracestate": "a=1",
        "x-correlation-id": "c",
    }


async def test_http_hands_it_on_in_the_records_headers_and_logs_it():
    headers = {"traceparent": PARENT, "tracestate": "a=1", "X-Correlation-Id": "c-1"}
    async with open_api() as api:
        with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as logs:
            await api.submit(agenda(), **headers)
        await api.submit(agenda(), **{"X-Correlation-Id": "c-2"})
    first, second = (dict(one.headers) for one in api.publisher.records)
    assert first == {
        "traceparent": PARENT.encode(),
        "tracestate": b"a=1",
        "x-correlation-id": b"c-1",
        "pop-admitted": b"1",
        "pop-definitions": b"0",
    }
    own = {"pop-admitted": b"1", "pop-definitions": b"0"}
    assert second == {"x-correlation-id": b"c-2", **own}
    got = next(one for one in logs if one["event"] == "agenda.submitted")
    assert (got["trace_id"], got["correlation_id"]) == (ID, "c-1")


def sorted_agenda(body, *headers) -> Agenda:
    insight = Insight(id="web", mappers=Mappers(operation_types=("http",)))
    processor = SubmissionProcessor(
        Topics("t."), Definitions(insights={insight.id: insight}), max_agenda_bytes=10_000
    )
    sent = record(json.dumps(body).encode(), headers=headers)
    result = processor.process([sent], now=datetime(2026, 1, 1, tzinfo=UTC))
    return parse_agenda(bytes(result.lifecycle[0].agenda))


def test_ingest_keeps_it_in_the_agenda_for_every_attempt():
    got = (("traceparent", PARENT.encode()), ("X-Correlation-Id", b"c-1"))
    assert sorted_agenda(agenda(), *got).trace == Trace(
        traceparent=PARENT, correlation_id="c-1"
    )
    assert sorted_agenda(agenda()).trace is None
    assert sorted_agenda(agenda(), ("traceparent", b"\xff\x00")).trace is None
    own = agenda(trace={"correlation_id": "own"})
    assert sorted_agenda(own, *got).trace == Trace(correlation_id="own")


async def test_a_handler_is_given_it():
    handlers, calls = Handlers(), []

    @handlers.handler("work")
    async def work(operation):
        calls.append(operation)

    node = {"name": "a", "type": "work"}
    one = emitted(node)
    whole = parse_agenda(
        {"customer_id": "acme", "operations": [node], "trace": {"traceparent": PARENT}}
    )
    with ThreadPoolExecutor(1) as threads:
        await AgendaRun(one, whole, run_context(handlers, threads), None).run()
    assert calls[0].trace.headers == {"traceparent": PARENT}
