"""What a member of a share group needs, and what the client is told of the cluster."""

import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from pop_stream.bus import share_member
from pop_stream.bus.share_member import MissingClientError, ShareMember
from pop_stream.settings import Settings


def test_without_its_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingClientError, match=r"pip install 'pop-stream\[share\]'"):
        ShareMember(Settings(), topic="pop.share.media", group="pop.share.media")


def test_the_client_is_told_of_the_cluster_as_all_others_are():
    settings = Settings(
        kafka_bootstrap="one:9092,two:9092",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_username="pop",
        kafka_password=SecretStr("secret"),
        kafka_ca_file=Path("/etc/ca.pem"),
    )
    told = share_member._arguments(settings, "pop.share.media")
    expected = {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "pop",
        "sasl.password": "secret",
        "ssl.ca.location": "/etc/ca.pem",
        "group.id": "pop.share.media",
    }
    assert expected.items() <= told.items()
    plain = share_member._arguments(Settings(), "pop.share.media")
    assert not [key for key in plain if key.startswith(("sasl.", "ssl."))]
