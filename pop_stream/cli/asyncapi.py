"""The AsyncAPI 3.0 document of the public topics, made from the catalog and the schemas.

It speaks of the service, as AsyncAPI does: it *receives* what other programs write, and *sends*
what they read. Topics that are not public may change, and are not in it.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pop_stream import __version__
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.schema_version import SCHEMA_HEADER, SCHEMA_VERSION
from pop_stream.policy.ingress.signature import AUTHORIZATION_HEADER
from pop_stream.resources import resource_folder
from pop_stream.settings import Settings

_BINDING: Final = "0.5.0"
_HOUR_MS: Final = 3_600_000
_JSON: Final = "application/json"
_SCHEMAS: Final = "#/components/schemas/"

_DESCRIPTION: Final = """\
Topics of pop_stream that other programs may write or read. A record's value is JSON, of one
schema a topic. Names begin with the prefix of `POP_TOPIC_PREFIX`; here it is `pop.`.
"""

_INSIGHT_ID: Final = {"description": "The insight, as it is defined."}

_VERSION_HEADER: Final = {
    "type": "string",
    "pattern": "^[0-9]+$",
    "description": f"The version of the schema, now {SCHEMA_VERSION}; 1 if it is left out.",
}
_AUTHORIZATION: Final = {
    "type": "string",
    "description": "`Bearer` and an API key or a token; needed if POP_INGEST_AUTH says so.",
}
_MORE_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "submissions": {AUTHORIZATION_HEADER: _AUTHORIZATION}
}

Schema = dict[str, Any]


def asyncapi(schemas: Mapping[str, Schema]) -> Schema:
    """The document.

    Args:
        schemas: JSON schemas of the values of topics, by file name, as they are published.
    """
    topics = [*_public_topics()]
    used = {topic["value"]: schemas[topic["value"]] for topic in topics}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "pop_stream",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _JSON,
        "servers": {"kafka": _server()},
        "channels": {topic["id"]: _channel(topic) for topic in topics},
        "operations": {
            f"{action}-{topic['id']}": _operation(topic, action)
            for topic in topics
            for action in topic["actions"]
        },
        "components": {
            "messages": {topic["message"]: _message(topic) for topic in topics},
            "schemas": dict(sorted(_components(used).items())),
        },
    }


def asyncapi_text(schemas: Mapping[str, Schema]) -> str:
    """The same as the text of a file."""
    return json.dumps(asyncapi(schemas), indent=2) + "\n"


def _public_topics() -> Iterator[Schema]:
    """Entries of the catalog, each with its id, its message's name and its address."""
    document = tomllib.loads((resource_folder("topics") / "catalog.toml").read_text())
    prefix = Topics("pop.").prefix
    for name, entry in document["topics"].items():
        if entry["public"]:
            message = entry["value"].removesuffix(".json")
            yield {**entry, "id": name, "message": message, "address": f"{prefix}{name}"}
    of_insights = document["insight-topics"]
    message = of_insights["value"].removesuffix(".json")
    for kind in ("insight", "share"):
        address = f"{prefix}{kind}.{{insight_id}}"
        yield {**of_insights, "id": kind, "message": message, "address": address}


def _server() -> Schema:
    brokers = str(Settings.model_fields["kafka_bootstrap"].default)
    return {
        "host": brokers,
        "protocol": "kafka",
        "description": "Brokers, as POP_KAFKA_BOOTSTRAP names them; Apache Kafka 4.",
    }


def _channel(topic: Schema) -> Schema:
    channel = {
        "address": topic["address"],
        "title": topic["address"],
        "description": topic["purpose"],
        "servers": [{"$ref": "#/servers/kafka"}],
        "messages": {topic["message"]: {"$ref": f"#/components/messages/{topic['message']}"}},
        "bindings": {"kafka": _kafka_channel(topic)},
    }
    if "{insight_id}" in topic["address"]:
        channel["parameters"] = {"insight_id": _INSIGHT_ID}
    return channel


def _kafka_channel(topic: Schema) -> Schema:
    configs: Schema = {"cleanup.policy": ["compact" if topic.get("compacted") else "delete"]}
    if hours := topic.get("retention_hours"):
        configs["retention.ms"] = hours * _HOUR_MS
    binding: Schema = {"topicConfiguration": configs, "bindingVersion": _BINDING}
    if partitions := topic.get("partitions"):
        binding["partitions"] = partitions
    return binding


def _operation(topic: Schema, action: str) -> Schema:
    channel = f"#/channels/{topic['id']}"
    return {
        "action": action,
        "channel": {"$ref": channel},
        "summary": topic["purpose"],
        "messages": [{"$ref": f"{channel}/messages/{topic['message']}"}],
    }


def _message(topic: Schema) -> Schema:
    headers = {SCHEMA_HEADER: _VERSION_HEADER, **_MORE_HEADERS.get(topic["id"], {})}
    return {
        "name": topic["message"],
        "contentType": _JSON,
        "headers": {"type": "object", "properties": headers},
        "payload": {"$ref": f"{_SCHEMAS}{topic['message']}"},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": topic["key"]},
                "bindingVersion": _BINDING,
            }
        },
    }


def _components(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """All schemas beside each other, by name; several files may define the same one.

    Raises:
        ValueError: If two define different ones under one name.
    """
    found: dict[str, Schema] = {}
    for file, schema in schemas.items():
        whole = {name: one for name, one in schema.items() if name not in {"$defs", "$schema"}}
        for name, one in {**schema.get("$defs", {}), file.removesuffix(".json"): whole}.items():
            adapted = _adapted(one)
            if found.setdefault(name, adapted) != adapted:
                msg = f"{file} defines another {name!r} than a schema before it; rename one"
                raise ValueError(msg)
    return found


def _adapted(schema: Any) -> Any:  # noqa: ANN401  # JSON
    """A JSON schema as AsyncAPI has it: references from the root, discriminators by name."""
    if isinstance(schema, list):
        return [_adapted(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    adapted = {name: _adapted(one) for name, one in schema.items()}
    if isinstance(reference := schema.get("$ref"), str):
        adapted["$ref"] = reference.replace("#/$defs/", _SCHEMAS)
    named = schema.get("discriminator")
    if isinstance(named, dict) and isinstance(name := named.get("propertyName"), str):
        adapted["discriminator"] = name
    return adapted
