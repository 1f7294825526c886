"""The container files: that they name what exists, since no engine runs them here."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from pop_stream.__main__ import app
from pop_stream.devserver.jars import RECORD
from pop_stream.model.definitions import Insight
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.settings import Settings

ROOT = Path(__file__).parents[3]
# Compose fills in ${NAME:-default} before it reads the file.
COMPOSE = yaml.safe_load(
    re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
)
SERVICES = COMPOSE["services"]
PARTS = sorted(name for name, one in SERVICES.items() if one["image"].startswith("pop-stream"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def arguments(name):
    return SERVICES[name]["command"]


def option(name, wanted):
    words = arguments(name)
    return words[words.index(wanted) + 1]


def test_every_part_has_a_service():
    assert {arguments(name)[0] for name in PARTS} == {
        "migrate", "serve", "ingest", "scheduler", "rollup", "pull",
    }  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_a_service_runs_a_command_that_takes_its_arguments(name):
    command, *rest = arguments(name)
    get_command(app).commands[command].make_context(command, rest)


@pytest.mark.parametrize("name", PARTS)
def test_a_service_sets_only_settings_that_exist_and_are_valid(name, monkeypatch):
    given = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
    known = {f"POP_{field.upper()}" for field in Settings.model_fields}
    assert given.keys() <= known
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    Settings()


def test_what_is_waited_for_can_come():
    for one in SERVICES.values():
        for name, wait in one.get("depends_on", {}).items():
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]
            else:
                assert SERVICES[name]["restart"] == "no"


def test_addresses_agree():
    environment = SERVICES["api"]["environment"]
    host, port = environment["POP_KAFKA_BOOTSTRAP"].split(":")
    kafka = SERVICES["kafka"]["environment"]
    assert f"PARTS://{host}:{port}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"PARTS://:{port}" in kafka["KAFKA_LISTENERS"].split(",")
    postgres = SERVICES["postgres"]["environment"]
    assert environment["POP_POSTGRES_DSN"] == (
        f"postgresql://{postgres['POSTGRES_USER']}:{postgres['POSTGRES_PASSWORD']}"
        f"@postgres:5432/{postgres['POSTGRES_DB']}"
    )


@pytest.mark.parametrize("name", sorted(set(PARTS) - {"api", "migrate"}))
def test_a_probe_of_a_part_asks_the_port_that_it_listens_to(name):
    environment = SERVICES[name]["environment"]
    assert environment["POP_METRICS_HOST"] == "0.0.0.0"  # noqa: S104  # of the container
    port = environment["POP_METRICS_PORT"]
    assert f":{port}/healthz" in SERVICES[name]["healthcheck"]["test"][-1]
    assert SERVICES[name]["expose"] == [str(port)]


def test_the_probe_of_the_api_asks_its_own_port():
    assert f":{Settings().http_port}/readyz" in SERVICES["api"]["healthcheck"]["test"][-1]


def test_the_puller_pulls_what_the_definitions_define():
    source, target, *_ = SERVICES["puller"]["volumes"][0].split(":")
    assert target == SERVICES["migrate"]["environment"]["POP_DEFINITIONS_FILE"]
    found = parse_definitions_file(tomllib.loads((ROOT / source).read_text()))
    insights = [one.id for one in found if isinstance(one, Insight)]
    assert option("puller", "--insight") in insights


def test_ports_are_open_to_this_machine_only():
    for one in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ()))


def test_the_broker_is_the_embedded_one():
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{RECORD.stem.removeprefix('kafka-')}"


def test_the_image_is_named_after_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {SERVICES[name]["image"] for name in PARTS}
    assert names == {f"{project['name']}:{project['version']}"}


def test_the_dockerfile_copies_what_is_there_and_is_not_ignored():
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert {"pop_stream", "sql", "topics", "requirements.lock"} <= set(names)
    for name in names:
        assert (ROOT / name).exists()
        assert name in allowed


def test_the_image_is_built_with_the_uv_of_the_makefile():
    (version,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.M)
    assert f"uv=={version}" in DOCKERFILE


def test_both_stages_are_of_the_image_that_is_chosen_by_digest():
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.M) == ["${PYTHON_IMAGE}"] * 2
    (name,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.M)
    assert DOCKERFILE.index("ARG PYTHON_IMAGE") < DOCKERFILE.index("FROM ")
    makefile = (ROOT / "Makefile").read_text()
    assert '--build-arg "PYTHON_IMAGE=$$name@$$digest"' in makefile
    assert name.startswith("python:")


def test_the_wheel_of_the_image_is_built_with_what_is_locked():
    assert (
        "uv build --wheel --build-constraints requirements.lock --require-hashes" in DOCKERFILE
    )


def test_the_image_runs_the_command_line_as_nobody_special():
    assert 'ENTRYPOINT ["pop-stream"]' in DOCKERFILE
    assert DOCKERFILE.index("USER pop-stream") < DOCKERFILE.index("ENTRYPOINT")
