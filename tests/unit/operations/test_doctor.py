"""What the doctor says of settings that leave an installation open."""

from datetime import timedelta

import pytest
from consumer_records import record

from pop_stream.clock import WallClock
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.operations import liveness
from pop_stream.operations.doctor import _security_findings
from pop_stream.ports.lag import GroupOffsets
from pop_stream.settings import Settings

SECRETS = {"signing_secrets": ("s" * 32,)}


@pytest.mark.parametrize(
    ("brokers", "more", "is_found"),
    [
        ("127.0.0.1:9092", {}, False),
        ("localhost:9092,[::1]:9093", {}, False),
        ("127.0.0.1:9092, kafka-2:9092", {}, True),
        ("kafka:9092", {}, True),
        ("kafka:9092", SECRETS, False),
    ],
)
async def test_brokers_of_a_network_without_a_secret_are_reported(brokers, more, is_found):
    found = await _security_findings(Settings(kafka_bootstrap=brokers, **more))
    assert any("POP_SIGNING_SECRETS" in one for one in found) is is_found


async def test_an_open_api_is_reported():
    settings = Settings(http_host="0.0.0.0", auth="off")  # noqa: S104  what is to be reported
    [found] = await _security_findings(settings)
    assert "POP_AUTH=required" in found


class Probe:
    """Says of every group how far it has come in every topic."""

    def __init__(self, ends, committed):
        self.offsets = GroupOffsets(ends=ends, committed=committed)

    async def fetch_group_offsets(self, group, topic, group_type="consumer"):
        return self.offsets


def read_of_age(*minutes):
    """A reader of topics whose partitions' first waiting records are so old."""
    now_ms = WallClock().now().timestamp() * 1000

    async def read(settings, place, begin, end):
        yield record(b"{}", timestamp=int(now_ms - minutes[place.partition] * 60_000))

    return read


@pytest.mark.parametrize(
    ("committed", "says"),
    [
        ({0: 5, 1: 7}, ""),
        ({0: 4, 1: 7}, ""),  # thirty seconds are not late
        ({0: 5, 1: 6}, "up to 90 min ago"),
        ({}, "up to 90 min ago"),
    ],
)
async def test_a_part_that_moves_but_is_late_is_reported_by_its_oldest_record(
    committed, says, monkeypatch
):
    monkeypatch.setattr(liveness, "read_range", read_of_age(0.5, 90))
    groups = [*liveness.consumer_groups(Topics("pop."), Definitions())]
    assert [one.name for one in groups] == [
        "ingest",
        "the relay",
        "the scheduler",
        "the rollup",
    ]
    for one in groups:
        found = await liveness._late_findings(Settings(), one, Probe({0: 5, 1: 7}, committed))
        assert bool(found) is bool(says)
        assert all(f"{one.name} is behind" in said and says in said for said in found)


def test_ages_are_said_in_words():
    spans = (timedelta(0), timedelta(seconds=59), timedelta(minutes=90))
    assert [liveness.in_words(one) for one in spans] == ["0 s", "59 s", "90 min"]
