"""Spans kept in memory, and a collector that takes them by OTLP over HTTP."""

import gzip
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from pop_stream.telemetry.span_export import provided
from pop_stream.telemetry.tracing import tracing_by


class KeptSpans:
    """What has ended, in order."""

    def __init__(self, spans, exporter):
        self.spans = spans
        self._exporter = exporter

    @property
    def ended(self):
        return self._exporter.get_finished_spans()

    def named(self, name):
        return [one for one in self.ended if one.name == name]

    def only(self, name):
        (one,) = self.named(name)
        return one


@contextmanager
def kept_spans(root=ALWAYS_ON):
    """Make all spans of the block, and keep them; a trace that begins here is sampled so."""
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    with provided("test", processor, ParentBased(root)) as spans, tracing_by(spans):
        yield KeptSpans(spans, exporter)


def traceparent(span):
    context = span.context
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


class Collected:
    """A span that a collector was sent."""

    def __init__(self, span, service):
        self.service = service
        self.name = span.name
        self.trace_id, self.span_id = span.trace_id.hex(), span.span_id.hex()
        self.parent_id = span.parent_span_id.hex()
        self.start_ns, self.end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = _attributes(span)
        self.links = [one.span_id.hex() for one in span.links]
        self.is_error = span.status.code == span.status.STATUS_CODE_ERROR


def _attributes(span):
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes
    }


class Collector:
    """Takes spans until it is closed.

    Attributes:
        url: For OTEL_EXPORTER_OTLP_ENDPOINT.
        spans: What came, in no order.
        calls: Headers of requests for any other path.
    """

    def __init__(self):
        self.url = ""
        self.spans = []
        self.calls = []
        self._app = web.Application()
        self._app.router.add_post("/v1/traces", self._take)
        self._app.router.add_route("*", "/{path:.*}", self._answer)

    async def _take(self, request):
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        sent = ExportTraceServiceRequest.FromString(body)
        for group in sent.resource_spans:
            service = _attributes(group.resource)["service.name"]
            for scope in group.scope_spans:
                self.spans += [Collected(one, service) for one in scope.spans]
        return web.Response()

    async def _answer(self, request):
        self.calls.append({name.lower(): text for name, text in request.headers.items()})
        return web.json_response({})

    def named(self, name, **attributes):
        """Those of a name, and with attributes whose dots are written as underscores."""
        return [
            one
            for one in self.spans
            if one.name == name
            and all(
                one.attributes.get(f"pop_stream.{key.replace('_', '.')}") == value
                for key, value in attributes.items()
            )
        ]


@asynccontextmanager
async def collector():
    """A collector that listens at a free port of this machine."""
    found = Collector()
    async with TestServer(found._app) as server:
        found.url = str(server.make_url("/")).rstrip("/")
        yield found
