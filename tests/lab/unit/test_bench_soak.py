"""When what parts hold is called flat."""

import pytest

from pop_stream.lab.bench.soak import report
from pop_stream.lab.bench.soak_run import Growth, ResourceSample, SoakResult, growth


@pytest.mark.parametrize(
    ("middle", "last", "is_flat"),
    [(100, 109, True), (100, 112, False), (100, 50, True), (10, 12.9, True), (10, 13.5, False)],
)
def test_a_tenth_or_a_handful_is_flat(middle, last, is_flat):
    assert Growth(middle, last).is_flat is is_flat


def test_warming_up_does_not_count():
    values = [(at, 500 if at < 30 else 100) for at in range(90)]
    assert growth(values) == Growth(100, 100)


def test_what_grows_all_the_time_is_found():
    assert not growth([(at, 100 + at) for at in range(90)]).is_flat


def test_the_report_tells_every_part_and_quantity():
    samples = [ResourceSample(at, 80.0 + at, 20, 5, 3) for at in range(60)]
    result = report(SoakResult(10, 0, {"ingest": samples}))
    assert result["flat"] is False
    assert result["parts"]["ingest"]["rss_mb"]["flat"] is False
    assert result["parts"]["ingest"]["files"] == {"middle": 20.0, "last": 20.0, "flat": True}
    assert len(result["samples"]["ingest"]) == 60
