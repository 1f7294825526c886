"""The AsyncAPI document: whole, of the public topics, and able to judge real records."""

import json
import tomllib

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from pop_stream.cli.asyncapi import asyncapi_text
from pop_stream.cli.generate import generated, schemas
from pop_stream.resources import resource_folder

CATALOG = tomllib.loads((resource_folder("topics") / "catalog.toml").read_text())
PUBLIC = {f"pop.{name}" for name, one in CATALOG["topics"].items() if one["public"]}
ROOT = "urn:asyncapi"


@pytest.fixture(scope="module")
def document():
    return json.loads(asyncapi_text(schemas()))


def references(found):
    if isinstance(found, dict):
        if isinstance(found.get("$ref"), str):
            yield found["$ref"]
        found = [*found.values()]
    if isinstance(found, list):
        for one in found:
            yield from references(one)


def resolved(document, reference):
    assert reference.startswith("#/"), reference
    found = document
    for part in reference[2:].split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def validator(document, message):
    registry = Registry().with_resource(
        ROOT, Resource.from_contents(document, default_specification=DRAFT202012)
    )
    pointer = document["components"]["messages"][message]["payload"]["$ref"]
    return Draft202012Validator({"$ref": f"{ROOT}{pointer}"}, registry=registry)


def test_it_is_among_the_files_that_are_held_current(document):
    [text] = [text for path, text in generated().items() if path.name == "asyncapi.json"]
    assert json.loads(text) == document
    assert document["asyncapi"] == "3.0.0"


def test_every_reference_resolves(document):
    found = [*references(document)]
    assert found
    for one in found:
        assert resolved(document, one) is not None


def test_every_public_topic_has_a_channel_and_no_other_has_one(document):
    addresses = {one["address"] for one in document["channels"].values()}
    assert addresses == PUBLIC | {"pop.insight.{insight_id}", "pop.share.{insight_id}"}
    for one in document["channels"].values():
        named = {f"{{{name}}}" for name in one.get("parameters", {})}
        assert all(name in one["address"] for name in named)
        assert ("{" in one["address"]) == bool(named)


def test_every_channel_is_written_or_read_and_every_operation_is_of_one(document):
    used = {one["channel"]["$ref"] for one in document["operations"].values()}
    assert used == {f"#/channels/{name}" for name in document["channels"]}
    for one in document["operations"].values():
        assert one["action"] in {"send", "receive"}
        channel = resolved(document, one["channel"]["$ref"])
        messages = [message["$ref"] for message in one["messages"]]
        offered = {f"{one['channel']['$ref']}/messages/{name}" for name in channel["messages"]}
        assert set(messages) == offered


def test_what_others_write_is_received_and_what_they_read_is_sent(document):
    actions = {}
    for one in document["operations"].values():
        actions.setdefault(one["channel"]["$ref"].split("/")[-1], set()).add(one["action"])
    assert actions["submissions"] == {"receive"}
    assert actions["agenda-events"] == {"send", "receive"}
    assert actions["insight"] == actions["dead-letters"] == {"send"}


def test_every_message_says_what_its_key_and_headers_are(document):
    for one in document["components"]["messages"].values():
        assert one["bindings"]["kafka"]["key"]["description"]
        assert "pop-schema" in one["headers"]["properties"]


def test_every_schema_is_one(document):
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("message", "sound", "unsound"),
    [
        (
            "submission",
            {"customer_id": "acme", "operations": [{"name": "a", "type": "http"}]},
            {"customer_id": "acme", "operations": []},
        ),
        (
            "agenda-events",
            {
                "type": "agenda.claimed", "agenda_id": "a1", "at": "2026-01-01T00:00:00Z",
                "insight_id": "media", "attempt": 1, "puller_id": "p1", "lease_ms": 60_000,
            },
            {"type": "agenda.claimed", "agenda_id": "a1", "attempt": -1},
        ),
    ],
)  # fmt: skip
def test_it_tells_sound_records_from_others(document, message, sound, unsound):
    judge = validator(document, message)
    judge.validate(sound)
    judge.validate([sound])
    assert not judge.is_valid(unsound)
