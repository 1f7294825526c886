"""Kafka's jars: what is cached is used, what is damaged is fetched, what fails says how."""

import hashlib
import socket
import threading

import pytest

from pop_stream.devserver.errors import JarsUnavailableError
from pop_stream.devserver.jars import RECORD, kafka_jars

JARS = {
    "org/apache/kafka/kafka_2.13/4.3.0/kafka_2.13-4.3.0.jar": b"broker",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar": b"logging",
}


class Central:
    """Stands in for jgo: writes what a repository would serve, and counts."""

    def __init__(self, jars):
        self.jars = jars
        self.asked = []

    def download(self, repository, path):
        self.asked.append(path)
        jar = repository / path
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(self.jars[path])


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "jars.sha256"
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in JARS.items())
    path.write_text("".join(lines))
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def unreachable(_repository, _path):
    error = "no route to host"
    raise ConnectionError(error)


def test_missing_jars_are_fetched_once(cache, record):
    central = Central(JARS)

    first = kafka_jars(cache, record=record, download=central.download)
    second = kafka_jars(cache, record=record, download=unreachable)

    assert sorted(central.asked) == sorted(JARS)
    assert first == second
    assert [path.read_bytes() for path in first] == list(JARS.values())


def test_a_full_cache_opens_no_socket(cache, record, monkeypatch):
    kafka_jars(cache, record=record, download=Central(JARS).download)

    def refuse(*_args, **_kwargs):
        pytest.fail("a full cache needs no network")

    monkeypatch.setattr(socket, "socket", refuse)

    assert len(kafka_jars(cache, record=record)) == len(JARS)


def test_only_a_damaged_jar_is_fetched_again(cache, record):
    paths = kafka_jars(cache, record=record, download=Central(JARS).download)
    paths[1].write_bytes(b"half")
    central = Central(JARS)

    kafka_jars(cache, record=record, download=central.download)

    assert central.asked == [list(JARS)[1]]
    assert paths[1].read_bytes() == b"logging"


def test_a_jar_with_another_checksum_is_refused(cache, record):
    forged = Central(JARS | {next(iter(JARS)): b"not the broker"})

    with pytest.raises(JarsUnavailableError, match=r"checksum.*kafka_2\.13-4\.3\.0\.jar"):
        kafka_jars(cache, record=record, download=forged.download)


def test_one_hiccup_of_the_network_is_forgiven(cache, record):
    central = Central(JARS)
    hiccups = iter([True])

    def flaky(repository, path):
        if next(hiccups, False):
            unreachable(repository, path)
        central.download(repository, path)

    assert len(kafka_jars(cache, record=record, download=flaky)) == len(JARS)


def test_without_a_network_the_error_says_what_was_tried_and_the_other_ways(cache, record):
    with pytest.raises(JarsUnavailableError) as raised:
        kafka_jars(cache, record=record, download=unreachable)

    text = str(raised.value)
    for part in (
        "org.apache.kafka:kafka_2.13:4.3.0",
        str(cache),
        "ConnectionError: no route to host",
        "POP_KAFKA_BOOTSTRAP",
        "POP_POSTGRES_DSN",
        "docker compose up",
    ):
        assert part in text


def test_an_unusable_cache_is_the_same_error(tmp_path, record):
    occupied = tmp_path / "cache"
    occupied.write_text("a file where a folder should be")

    with pytest.raises(JarsUnavailableError, match="NotADirectoryError"):
        kafka_jars(occupied, record=record, download=unreachable)


def test_a_cancelled_fetch_stops_downloading(cache, record):
    cancelled = threading.Event()
    cancelled.set()
    central = Central(JARS)

    with pytest.raises(JarsUnavailableError, match="missing"):
        kafka_jars(cache, record=record, download=central.download, cancelled=cancelled)

    assert central.asked == []


def test_the_record_names_one_version_of_each_jar():
    lines = [line.split() for line in RECORD.read_text().splitlines()]
    paths = [path for _, path in lines]
    artifacts = [path.rsplit("/", 2)[0] for path in paths]

    assert all(len(checksum) == 64 for checksum, _ in lines)
    assert len(artifacts) == len(set(artifacts))
    assert "org/apache/kafka/kafka_2.13/4.3.0/kafka_2.13-4.3.0.jar" in paths
    assert any("log4j-slf4j-impl" in path for path in paths)
