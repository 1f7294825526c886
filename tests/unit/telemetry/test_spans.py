"""The spans of an agenda's way: what they belong to and say, and when there are none."""

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from puller_fakes import AT, emitted
from span_fakes import kept_spans, traceparent

from pop_stream.model.trace import Trace
from pop_stream.telemetry import tracing
from pop_stream.telemetry.spans import MAX_LINKS, MAX_OPERATIONS, trace_in

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = Trace(traceparent=f"00-{ID}-{SPAN}-01", tracestate="shop=1", correlation_id="c-1")
QUIET = Trace(traceparent=f"00-{ID}-{SPAN}-00")


@pytest.fixture
def kept():
    with kept_spans() as spans:
        yield spans


def agenda(trace=None, **fields):
    body = {"customer_id": "acme", "operations": [{"name": "a", "type": "w"}], **fields}
    if trace is not None:
        body["trace"] = trace.model_dump(exclude_none=True)
    return msgspec.Raw(json.dumps(body).encode())


def test_a_trace_begins_with_a_submission_and_is_handed_on(kept):
    span = kept.spans.begin_submit(None, lambda: {"http.route": "/v1/agendas"}, over_http=True)
    span.end(status=202)
    submit = kept.only("submit")
    assert submit.parent is None
    assert submit.kind is otel.SpanKind.SERVER
    assert submit.attributes == {"http.route": "/v1/agendas", "http.response.status_code": 202}
    assert span.trace == Trace(traceparent=traceparent(submit))


def test_a_submission_continues_the_trace_it_came_with(kept):
    span = kept.spans.begin_submit(SAMPLED, dict, over_http=False)
    span.end()
    submit = kept.only("submit")
    assert submit.kind is otel.SpanKind.CONSUMER
    assert f"{submit.parent.span_id:016x}" == SPAN
    assert span.trace.trace_id == ID
    assert (span.trace.tracestate, span.trace.correlation_id) == ("shop=1", "c-1")


def test_what_is_not_sampled_has_no_span_and_keeps_its_trace(kept):
    assert kept.spans.begin_submit(QUIET, dict, over_http=True) is None
    assert kept.spans.begin_run(emitted(), QUIET, AT) is None
    kept.spans.record_wait(emitted(agenda=agenda(QUIET)), since=AT, attributes={})
    with kept_spans(ALWAYS_OFF) as none:
        assert none.spans.begin_submit(None, dict, over_http=True) is None
    assert kept.ended == ()


@pytest.mark.parametrize(
    ("status", "is_error"), [(202, False), (422, False), (429, False), (503, True)]
)
def test_a_refusal_over_http_is_no_error_of_the_server(kept, status, is_error):
    span = kept.spans.begin_submit(None, dict, over_http=True)
    span.end(status=status, error_type="" if status == 202 else str(status))
    assert (kept.only("submit").status.status_code is otel.StatusCode.ERROR) == is_error


def test_a_wait_ends_with_the_emission(kept):
    one = emitted(agenda=agenda(SAMPLED), emitted_at=AT + timedelta(seconds=9))
    since = AT + timedelta(seconds=2)
    kept.spans.record_wait(one, since=since, attributes={"pop_stream.round.position": 3})
    wait = kept.only("wait")
    assert (wait.end_time - wait.start_time) == 7 * 10**9
    assert f"{wait.parent.span_id:016x}" == SPAN
    assert wait.attributes == {
        "pop_stream.agenda.id": "a1",
        "pop_stream.customer.id": "acme",
        "pop_stream.insight.id": "media",
        "pop_stream.attempt": 1,
        "pop_stream.round.position": 3,
    }


def test_a_trace_is_found_in_an_agenda_and_not_in_its_payloads():
    assert trace_in(agenda(SAMPLED)) == Trace(
        traceparent=SAMPLED.traceparent, tracestate="shop=1"
    )
    assert trace_in(agenda()) is None
    node = {"name": "a", "type": "w", "payload": {"traceparent": SAMPLED.traceparent}}
    assert trace_in(agenda(operations=[node])) is None
    assert trace_in(agenda(Trace(correlation_id="c"), title='"traceparent"')) is None


def attempt(kept, number, **more):
    """Run one in a task of its own, as the executor does."""

    async def run():
        span = kept.spans.begin_run(emitted(attempt=number, **more), SAMPLED, AT)
        assert otel.get_current_span().is_recording()
        span.end("failed" if number == 1 else "succeeded", "final" if number == 1 else "")

    asyncio.run(run())


def test_an_attempt_links_to_those_before_it(kept):
    attempt(kept, 1)
    attempt(kept, 2)
    first, second = kept.named("run")
    assert first.links == ()
    [link] = second.links
    assert (link.context.trace_id, link.context.span_id) == (
        first.context.trace_id,
        first.context.span_id,
    )
    assert link.attributes == {"pop_stream.attempt": 1}
    assert first.status.status_code is otel.StatusCode.ERROR
    assert first.attributes["error.type"] == "final"
    assert first.attributes["pop_stream.outcome"] == "failed"
    assert second.status.status_code is otel.StatusCode.UNSET


def test_links_are_bounded(kept):
    attempt(kept, 50)
    assert len(kept.only("run").links) == MAX_LINKS


def test_attempts_of_different_agendas_have_different_ids(kept):
    attempt(kept, 1)
    attempt(kept, 1, agenda_id="a2")
    attempt(kept, 1, accepted_at=AT + timedelta(seconds=1))
    assert len({one.context.span_id for one in kept.named("run")}) == 3


async def test_operations_are_of_their_attempt_and_current_while_they_run(kept):
    run = kept.spans.begin_run(emitted(), SAMPLED, AT)
    one = tracing.begin_operation("a", "work")
    inside = tracing.handed_on(SAMPLED)
    one.end("failed", tries=2, error_type="boom")
    after = tracing.handed_on(SAMPLED)
    run.end("failed", "boom")
    operation, ended = kept.only("operation"), kept.only("run")
    assert operation.parent.span_id == ended.context.span_id
    assert inside.traceparent == traceparent(operation)
    assert (inside.tracestate, inside.correlation_id) == ("shop=1", "c-1")
    assert after.traceparent == traceparent(ended)
    assert operation.attributes == {
        "pop_stream.operation.name": "a",
        "pop_stream.operation.type": "work",
        "pop_stream.operation.tries": 2,
        "pop_stream.outcome": "failed",
        "error.type": "boom",
    }


async def test_an_attempt_of_many_operations_has_spans_of_the_first(kept):
    run = kept.spans.begin_run(emitted(), SAMPLED, AT)
    for number in range(MAX_OPERATIONS + 5):
        if (one := tracing.begin_operation(f"o{number}", "work")) is not None:
            one.end("succeeded", tries=1)
    run.end("succeeded")
    run.end("stopped")
    assert len(kept.named("operation")) == MAX_OPERATIONS
    assert kept.only("run").attributes["pop_stream.operations"] == MAX_OPERATIONS + 5
    assert kept.only("run").attributes["pop_stream.outcome"] == "succeeded"


def test_without_tracing_there_is_nothing_to_hand_on():
    assert tracing.active() is None
    assert tracing.begin_operation("a", "work") is None
    assert tracing.handed_on(SAMPLED) is SAMPLED
    assert tracing.handed_on(None) is None
