"""Histograms by label: what they count, whom they name, and how the two formats show it."""

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from pop_stream.telemetry.histograms import OTHERS, SERIES, BoundedLabels, LabelledHistogram
from pop_stream.telemetry.server import render_metrics

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


def histogram(**more):
    registry = CollectorRegistry()
    one = LabelledHistogram("pop_wait_seconds", "Waits.", ["insight"], (1.0, 10.0), **more)
    registry.register(one)
    return registry, one


def samples(registry, accept="", parse=plain):
    body, _ = render_metrics(registry, accept)
    [family] = parse(body.decode())
    return family.samples


def test_buckets_count_what_is_at_most_their_bound():
    registry, waits = histogram()
    for seconds in (0.5, 1.0, 1.1, 10.0, 99.0):
        waits.observe(("media",), seconds)
    found = {(one.name, one.labels.get("le")): one.value for one in samples(registry)}
    assert found == {
        ("pop_wait_seconds_bucket", "1.0"): 2,
        ("pop_wait_seconds_bucket", "10.0"): 4,
        ("pop_wait_seconds_bucket", "+Inf"): 5,
        ("pop_wait_seconds_count", None): 5,
        ("pop_wait_seconds_sum", None): 111.6,
    }


def test_what_clocks_that_differ_make_negative_counts_as_nothing():
    registry, waits = histogram()
    waits.observe(("media",), -3.0)
    assert registry.get_sample_value("pop_wait_seconds_sum", {"insight": "media"}) == 0.0


def test_beyond_the_most_that_are_named_all_are_one_series():
    registry, waits = histogram()
    for number in range(SERIES + 50):
        waits.observe((f"i-{number}",), 0.1)
    waits.observe(("i-0",), 0.1)
    name, label = "pop_wait_seconds_count", "insight"
    assert registry.get_sample_value(name, {label: "i-0"}) == 2
    assert registry.get_sample_value(name, {label: OTHERS}) == 50
    assert registry.get_sample_value(name, {label: f"i-{SERIES}"}) is None


def test_a_value_that_was_named_stays_named():
    bounded = BoundedLabels(1)
    assert bounded.of(("a", "x")) == ("a", "x")
    assert bounded.of(("b", "x")) == (OTHERS, OTHERS)
    assert bounded.of(("a", "x")) == ("a", "x")


def test_open_metrics_name_an_agenda_of_each_bucket_once_a_second():
    registry, waits = histogram()
    waits.observe(("media",), 0.5, example="first", at=100.0)
    waits.observe(("media",), 0.6, example="too soon", at=100.5)
    waits.observe(("media",), 5.0, example="slow", at=100.5)
    waits.observe(("media",), 50.0, example="x" * 200, at=100.5)
    named = {
        one.labels["le"]: one.exemplar and one.exemplar.labels
        for one in samples(registry, OPEN_METRICS, open_metrics)
        if "le" in one.labels
    }
    assert named == {"1.0": {"agenda_id": "first"}, "10.0": {"agenda_id": "slow"}, "+Inf": None}
    waits.observe(("media",), 0.7, example="later", at=101.0)
    first = next(one for one in samples(registry, OPEN_METRICS, open_metrics) if one.exemplar)
    assert first.exemplar.labels == {"agenda_id": "later"}


def examples(registry):
    found = samples(registry, OPEN_METRICS, open_metrics)
    return [one.exemplar.labels for one in found if one.exemplar]


def test_an_agenda_with_a_trace_is_named_before_others_and_for_a_minute():
    registry, waits = histogram()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    waits.observe(("media",), 0.5, example="plain", at=100.0)
    waits.observe(("media",), 0.5, example="traced", trace_id=trace, at=100.1)
    waits.observe(("media",), 0.5, example="too soon", trace_id="f" * 32, at=100.2)
    waits.observe(("media",), 0.5, example="plain", at=159.0)
    assert examples(registry) == [{"agenda_id": "traced", "trace_id": trace}]
    waits.observe(("media",), 0.5, example="plain", at=161.0)
    assert examples(registry) == [{"agenda_id": "plain"}]


def test_what_is_too_long_for_an_exemplar_leaves_the_trace():
    registry, waits = histogram()
    waits.observe(("media",), 0.5, example="x" * 80, trace_id="f" * 32, at=100.0)
    assert examples(registry) == [{"trace_id": "f" * 32}]
