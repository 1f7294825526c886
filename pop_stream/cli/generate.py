"""Writes what is made from the code: message schemas, AsyncAPI, OpenAPI, settings and topics.

`python -m pop_stream.cli.generate` writes the files; with `--check` it writes nothing and
fails if any of them is not what it would write.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter
from pydantic_core import PydanticUndefined

from pop_stream.api.http.openapi import openapi
from pop_stream.api.routes.agendas import agenda_routes
from pop_stream.api.routes.pulls import pull_routes
from pop_stream.api.routes.waits import wait_routes
from pop_stream.cli.asyncapi import asyncapi_text
from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Definition
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.occasions import OccasionEvent, ScheduleEvent, ScheduleState
from pop_stream.model.events.pull import DeliveryEvent, PollDemandEvent
from pop_stream.model.events.quota import UsageEvent
from pop_stream.model.events.rules import EndedAgenda, InsightIdled, RuleActed, RuleState
from pop_stream.model.events.scheduling import (
    AttemptStop,
    EmittedAgenda,
    QueueDescribed,
    ReadyEvent,
    RecordRefused,
    RoundDecided,
)
from pop_stream.model.events.schema_version import SCHEMA_HEADER, SCHEMA_VERSION
from pop_stream.model.template import TEMPLATE_RUN
from pop_stream.policy.backlog.checkpoint import RoundCheckpoint
from pop_stream.policy.lifecycle.webhooks import WebhookExhausted
from pop_stream.resources import resource_folder
from pop_stream.settings import Settings

_ROOT: Final = resource_folder("topics").parent
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_DECIDED: Final[Any] = ScheduleEvent | list[ScheduleEvent]
_SUBMISSION: Final[Any] = Agenda | TEMPLATE_RUN | list[Agenda | TEMPLATE_RUN]  # type: ignore[valid-type]  # made at run time

_OF_WORKERS: Final = frozenset(
    {
        "submitAgendas", "getAgendaProgress", "makeCompletionToken",
        "pullAgendas", "renewAttempt", "reportProgress", "completeAttempt",
    }
)  # fmt: skip
"""What workers in other languages ask the API; their types are made from it."""

Schema = dict[str, Any]


def generated() -> Mapping[Path, str]:
    """Every generated file, by path, with the content it should have."""
    of_topics = schemas()
    files = {
        resource_folder("topics") / "schemas" / name: json.dumps(schema, indent=2) + "\n"
        for name, schema in of_topics.items()
    }
    reference = _ROOT / "docs" / "reference"
    files[reference / "settings.md"] = _settings_page()
    files[reference / "topics.md"] = _topics_page()
    files[reference / "asyncapi.json"] = asyncapi_text(of_topics)
    files[reference / "workers-openapi.json"] = _workers_openapi()
    return files


def schemas() -> dict[str, Schema]:
    """JSON schemas of the values of all topics, by file name."""
    agenda = TypeAdapter(Agenda).json_schema()
    carried = _with_agenda(agenda)
    return {
        "submission.json": _titled(
            "An agenda or a template to run, or a list of them",
            TypeAdapter(_SUBMISSION).json_schema(),
        ),
        "insight.json": _titled("An agenda to run now", carried(EmittedAgenda)),
        "agenda-events.json": _titled(
            "One lifecycle event, or a list of them",
            carried(LifecycleEvent | list[LifecycleEvent]),
        ),
        "ready.json": _titled(
            "One event for the scheduler, or a list of them",
            carried(ReadyEvent | list[ReadyEvent]),
        ),
        "definitions.json": _titled(
            "A customer, insight, pool, template, schedule or rule, as the key says",
            TypeAdapter(Definition).json_schema(),
        ),
        "occasions.json": _titled("What happened about a schedule", _of(OccasionEvent)),
        "timekeeper.json": _titled("Up to where a schedule has come", _of(ScheduleState)),
        **_of_rules(),
        "schedule-events.json": _titled("What was decided of occurrences", _of(_DECIDED)),
        "controls.json": _titled("An attempt to stop", _of(AttemptStop)),
        "quota-usage.json": _titled("What waits and is on its way", _of(UsageEvent)),
        "poll-demand.json": _titled("What callers over HTTP want", carried(PollDemandEvent)),
        "deliveries.json": _titled("What callers over HTTP get", carried(DeliveryEvent)),
        "decisions.json": _titled(
            "One emission round, or a part of the state before it",
            _of(RoundDecided | RoundCheckpoint),
        ),
        "query-replies.json": _titled("The scheduler's view", _of(QueueDescribed)),
        "dead-webhooks.json": _titled(
            "A callback that no try could deliver", _of(WebhookExhausted)
        ),
        "dead-letters.json": _titled("A record that no part could use", _of(RecordRefused)),
    }


class _Unserved:
    """Stands for the endpoints of routes that are described and not served."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any endpoint
        return self

    def __call__(self, *_: object) -> Any:  # noqa: ANN401  # any handler
        return self


def _workers_openapi() -> str:
    """The part of the API's OpenAPI document that workers need."""
    none: Any = _Unserved()
    table = (
        *agenda_routes(none, none, none, none, none),
        *wait_routes(none, none, none, none),
        *pull_routes(none, none),
    )
    ours = [route for route in table if route.name in _OF_WORKERS]
    return json.dumps(openapi(ours, requires_authentication=True), indent=2) + "\n"


def _of_rules() -> dict[str, Schema]:
    return {
        "agenda-ends.json": _titled("How an agenda has ended", _of(EndedAgenda)),
        "idle-insights.json": _titled("An insight has become idle", _of(InsightIdled)),
        "rule-actions.json": _titled("What a rule does to agendas or signals", _of(RuleActed)),
        "rule-states.json": _titled("What became of a rule's records", _of(RuleState)),
    }


def stale() -> list[Path]:
    """Generated files that are missing or not as they should be."""
    return [
        path
        for path, content in generated().items()
        if not path.is_file() or path.read_text() != content
    ]


def main() -> None:
    """Write all files, or with `--check` name those that differ and exit with 1."""
    if "--check" in sys.argv[1:]:
        found = stale()
        for path in found:
            sys.stderr.write(f"{path.relative_to(_ROOT)} is not current: run `make generate`\n")
        sys.exit(1 if found else 0)
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def _of(shape: Any) -> Schema:  # noqa: ANN401  # types and unions of types
    return msgspec.json.schema(shape)


def _with_agenda(agenda: Schema) -> Any:  # noqa: ANN401  # a function from shape to schema
    """A maker of schemas in which carried agendas have their full shape."""
    definitions = {**agenda.pop("$defs", {}), "Agenda": agenda}

    def make(shape: Any) -> Schema:  # noqa: ANN401  # types and unions of types
        schema = _of(shape)
        for definition in schema.get("$defs", {}).values():
            if "agenda" in definition.get("properties", {}):
                definition["properties"]["agenda"] = {"$ref": "#/$defs/Agenda"}
        schema.setdefault("$defs", {}).update(definitions)
        return schema

    return make


def _titled(title: str, schema: Schema) -> Schema:
    return {"$schema": _DIALECT, **schema, "title": title}


def _settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Environment variables of every part, read once at its start. Generated from",
        "`pop_stream/settings.py`; do not edit.",
        "",
        "| variable | type | default | meaning |",
        "|---|---|---|---|",
    ]
    schema = Settings.model_json_schema()["properties"]
    for name, info in Settings.model_fields.items():
        shown = "" if info.default in {None, PydanticUndefined} else _default(schema[name])
        kind = schema[name].get("format") or schema[name].get("type") or "text"
        lines.append(f"| `POP_{name.upper()}` | {kind} | {shown} | {info.description or ''} |")
    return "\n".join(lines) + "\n"


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in ([], "", None) else f"`{default}`"


def _topics_page() -> str:
    document = tomllib.loads((resource_folder("topics") / "catalog.toml").read_text())
    rows = {f"pop.{name}": entry for name, entry in document["topics"].items()}
    rows["pop.insight.<id>"] = document["insight-topics"]
    lines = [
        "# Topics",
        "",
        "Generated from `topics/catalog.toml`; do not edit. The value of a record is JSON. On",
        "`pop.submissions`, `pop.ready` and `pop.agenda-events` it is one object or a list.",
        "Public topics are for other programs to read or write; the rest may change. An",
        "[AsyncAPI 3 document](asyncapi.json) has the public ones.",
        "All have `message.timestamp.type=LogAppendTime`: no writer's clock counts.",
        "",
        "## Schema version",
        "",
        f"The header `{SCHEMA_HEADER}` of every record that a part writes has the version of",
        f"its schema, in digits: {SCHEMA_VERSION}. Readers take the version before, the same",
        f"and the one after ({_versions()}), ignore unknown fields, and use defaults for",
        "missing ones. A record without the header is of version 1: other",
        "programs need not write it. One of a version further off is not read but goes to the",
        "dead letters, where the reason names its version. Records of the two compacted topics",
        "outlive versions, so all of them are read if possible.",
        "",
        "## All topics",
        "",
        "| topic | public | key | schema | partitions | kept | carries |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in rows.items():
        kept = "compacted" if entry.get("compacted") else f"{entry['retention_hours']} h"
        value = entry["value"]
        link = f"[{value}](../../topics/schemas/{value})" if value.endswith("json") else value
        lines.append(
            f"| `{name}` | {'yes' if entry['public'] else 'no'} | {entry['key']} | {link} | "
            f"{entry.get('partitions', 'of the insight')} | {kept} | {entry['purpose']} |"
        )
    return "\n".join(lines) + "\n"


def _versions() -> str:
    return f"{max(SCHEMA_VERSION - 1, 1)} to {SCHEMA_VERSION + 1}"


if __name__ == "__main__":
    main()
