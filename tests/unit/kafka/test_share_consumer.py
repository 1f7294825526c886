"""What a share group consumer needs, and how its client is configured."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from pydantic import SecretStr

from pop_stream.kafka import share_consumer
from pop_stream.kafka.share_consumer import MissingClientError, ShareGroupConsumer
from pop_stream.settings import Settings


def test_without_its_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingClientError, match=r"pip install 'pop-stream\[share\]'"):
        ShareGroupConsumer(Settings(), topic="pop.share.media", group="pop.share.media")


def test_the_client_gets_the_cluster_and_security_of_the_settings():
    settings = Settings(
        kafka_bootstrap="one:9092,two:9092",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_username="pop",
        kafka_password=SecretStr("secret"),
        kafka_ca_file=Path("/etc/ca.pem"),
    )
    arguments = share_consumer._arguments(settings, "pop.share.media")
    expected = {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "pop",
        "sasl.password": "secret",
        "ssl.ca.location": "/etc/ca.pem",
        "group.id": "pop.share.media",
    }
    assert expected.items() <= arguments.items()
    plain = share_consumer._arguments(Settings(), "pop.share.media")
    assert not [key for key in plain if key.startswith(("sasl.", "ssl."))]


class Client:
    """Stands in for the client, which says that all was settled, whoever has it by then."""

    def __init__(self, *polls):
        self.polls = [*polls]
        self.answers = {}

    def poll(self, _):
        return self.polls.pop(0)

    def acknowledge_offset(self, topic, partition, *_):
        self.answers[TopicPartition(topic, partition)] = None

    def commit_sync(self, _):
        return self.answers


@pytest.mark.parametrize(
    ("polled_at", "settled_at", "is_ours"),
    [
        ([100.0], 100.1, True),
        ([100.0], 113.0, True),
        ([100.0], 131.0, False),  # frozen since the record came
        ([100.0, 100.5], 101.0, True),
        ([100.0, 130.5], 131.0, False),  # it may have come right after the first, unseen
        ([100.0, 130.5, 131.0], 131.5, True),
    ],
)
async def test_a_record_held_beyond_its_lock_does_not_count_as_acknowledged(
    monkeypatch, polled_at, settled_at, is_ours
):
    now = iter([*polled_at, settled_at])
    monkeypatch.setattr(share_consumer, "monotonic", lambda: next(now))
    client = Client(*[[] for _ in polled_at])
    monkeypatch.setattr(share_consumer, "_consumer", lambda *_: client)
    one = ShareGroupConsumer(Settings(), topic="pop.share.media", group="pop.share.media")
    for _ in polled_at:
        await one.poll(0.5)
    assert await one.acknowledge([]) == is_ours


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_record_missing_in_the_answer_does_not_count_as_acknowledged(
    monkeypatch, is_answered
):
    """It forgets what it was given by a broker that is gone, and somebody else is given it."""
    client = Client([])
    monkeypatch.setattr(share_consumer, "_consumer", lambda *_: client)
    if not is_answered:
        monkeypatch.setattr(client, "commit_sync", lambda _: {})
    one = ShareGroupConsumer(Settings(), topic="pop.share.media", group="pop.share.media")
    await one.poll(0.5)
    record = SimpleNamespace(topic="pop.share.media", partition=0, offset=7)
    assert await one.acknowledge([record]) == is_answered
