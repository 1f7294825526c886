"""What a golden run found, in a form in which two runs of the same code are equal.

`normalised` leaves out what time and chance decide: instants, ids, ports, how events fell into
records, and how often background events came. `differences` compares a run with the golden
file. What is called otherwise on purpose since the golden file was recorded stands in
`RENAMES`, and is no difference; it is empty once the file is recorded again.

A golden file is one object: a path, such as `topic/agenda-events/dag`, and what was found
there, in an order that says nothing. Of events whose number and content depend on time only
the fields are kept, as `fields/ready/insight.tick`.
"""

import base64
import json
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from pop_stream.lab.golden.run import PREFIX, GoldenNames, decoded, events_of, plain
from pop_stream.lab.golden.world import Json

Found = dict[str, list[Json]]
"""What there is, by path."""

# ---- what is called otherwise by now: name in the golden file -> name in the code ----

RENAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "topics": {},  # without the prefix
    "values": {},  # types of events and all other whole texts
    "fields": {},  # of records, answers, rows, headers; and tables
    "settings": {},  # variables
}


def renamed(kind: str, name: str) -> str:
    """What something of the golden file is called in the code."""
    return RENAMES[kind].get(name, name)


def either(*names: str) -> frozenset[str]:
    """These names, and what they are called in the code."""
    return frozenset(names) | {renamed(kind, name) for kind in RENAMES for name in names}


# ---- what differs between two runs of the same code ----

SHAPED: Final = either(
    *("query-replies", "quota-usage", "decisions", "poll-demand", "scheduler-ready-changelog"),
    *("insight.tick", "queue.queried", "insight.attempts.reported", "insight.agendas.routed"),
    *("agenda.progressed", "agenda.heartbeat"),
    "why-held",
)
"""Topics, types of events and steps of the work of which only the fields are kept. Of those
that are also named below, single parts are kept besides."""
PARTS: Final = either("agendas", "claims", "settlements", "commands", "chosen")
"""Fields of these with one part for each agenda, whichever record it came with."""
_ARRAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "claims": ("agenda_id", "attempt", "sync_matched", "by_http"),
    "settlements": ("agenda_id", "attempt", "outcome", "spent_s", "retryable", "message"),
    "commands": (
        *("agenda_id", "action", "priority", "rank", "by", "reason", "attempt", "origin"),
    ),
}
ARRAYS: Final = {
    name: [renamed("fields", one) for one in places]
    for part, places in _ARRAYS.items()
    for name in either(part)
}
"""Parts that are arrays on the wire, and what their places mean."""
OPERATIONS: Final = either("operations", "appended")
"""Of events of an attempt: which of them brings what depends on time, the last does not."""
AGENDA_ID: Final = renamed("fields", "agenda_id")
FRAMED: Final = either("agenda-events", "ready")
"""Topics whose records hold events of any number of agendas: their keys say little."""
OPTIONAL: Final = frozenset(
    (kind, field)
    for event, fields in {
        "insight.tick": ("lag", "lags", "emitted", "relayed_until", "is_api_unavailable"),
        "queue.described": ("eligible",),
    }.items()
    for kind in either(event)
    for field in either(*fields)
)
"""Fields of shaped events that are there in some runs only."""
COMPACTED: Final = either("definitions")
"""Topics in which a repeat says nothing."""
DROPPED: Final = either("expedite_reports", "sync_matched", "idle", "origin")
"""Fields that are there if it happened so."""
MASKED: Final = either("lease_token", "spent_s", "api_id", "dispatcher_id", "offset", "present")
"""Fields whose numbers and texts differ."""
UNSETTLED: Final = either("progress")
"""What a puller gets of earlier attempts."""
UNSETTLED_FIELDS: Final = frozenset({"state", "started_at"})
"""Of these, what is as far as the rollup has come."""
SHOWN_HEADERS: Final = either("pop-schema", "pop-admitted")
TEXTS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]{8}(\.\d+)?(Z|[+-]\d\d:?\d\d)"), "<instant>"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"has \d+ ready agendas"), "has <some> ready agendas"),
    (re.compile(re.escape(socket.gethostname()) + r"\.\d+\.[0-9a-f]{6}"), "<puller>"),
)
"""What differs within texts, and what stands for it."""

SETTINGS: Final = {
    "POP_WEBHOOK_KEYS": '["a golden key that is long enough"]',
    "POP_WEBHOOK_NETWORKS": '["127.0.0.0/8"]',
    "POP_HTTP_NETWORKS": '["127.0.0.0/8"]',
    "POP_RECONCILE_EVERY": "0",  # finds what happens to be on its way
    "POP_HEARTBEAT": "PT1H",  # how many there are depends on time
}


# ---- what is the same in each run ----


def normalised(raw: Json) -> Found:
    """What was read, without what differs between two runs; by path, in order."""
    found: defaultdict[str, list[Json]] = defaultdict(list)
    for topic, records in raw["topics"].items():
        for path, one in of_topic(topic, records):
            if topic not in COMPACTED or one not in found[path]:
                found[path].append(one)
    for step, answer in raw["answers"].items():
        found[f"answer/{step}"].append((shape if step in SHAPED else scrubbed)(answer))
    for agenda_id, summary_and_progress in raw["agendas"].items():
        found[f"agenda/{agenda_id}"] += scrubbed(summary_and_progress)
    for table, columns in raw["tables"].items():
        found[f"table/{table}"].append(columns)
    return {path: sorted(some, key=text) for path, some in sorted(found.items())}


def of_topic(topic: str, records: list[Json]) -> Iterator[tuple[str, Json]]:
    """All that is kept of a topic, with its path."""
    fields: defaultdict[str, dict[str, Json]] = defaultdict(dict)
    headers: defaultdict[str, set[str]] = defaultdict(set)
    latest: dict[str, Json] = {}
    for record in records:
        for name, value in record["headers"].items():
            headers[name].add(value if name in SHOWN_HEADERS else "#")
        for event in events_of(record["value"]):
            latest.update(operations_of(event))
            if is_shaped(topic, event):
                kind = event.get("type") or kind_of_row(record["key"])
                fields[kind] = merged(fields[kind], shape(event))
                yield from parts_of(topic, event)
            else:
                yield whole(topic, record, event)
            if topic in FRAMED and AGENDA_ID in event:
                latest[f"partition/{topic}/{event[AGENDA_ID]}"] = record["partition"]
    yield from latest.items()
    yield f"headers/{topic}", {name: sorted(value) for name, value in headers.items()}
    for kind, one in fields.items():
        steady = {name: value for name, value in one.items() if (kind, name) not in OPTIONAL}
        yield f"fields/{topic}/{kind}", steady


def kind_of_row(key: str) -> str:
    """Of which kind a row of the scheduler's table is, of whatever insight."""
    return re.sub(r"\d+", "<n>", re.sub(r"(?<=/)(general|manual|brief|fair)", "<insight>", key))


def whole(topic: str, record: Json, event: Json) -> tuple[str, Json]:
    """An event of which all is kept but what its attempt's operations came to."""
    kept = {
        name: value
        for name, value in event.items()
        if name not in OPERATIONS or not is_of_attempt(event)
    }
    if topic in FRAMED:
        return f"topic/{topic}/{event.get(AGENDA_ID, '-')}", scrubbed(kept)
    place = record["key"] or event.get(AGENDA_ID) or event.get("id") or "-"
    return f"topic/{topic}/{place}", scrubbed({"key": record["key"], "value": kept})


def parts_of(topic: str, event: Json) -> Iterator[tuple[str, Json]]:
    """What an event says of each agenda, as if it said nothing else."""
    for field in PARTS & event.keys():
        for part in event[field]:
            named = part
            if isinstance(part, list):
                places = ARRAYS[field]
                named = dict(zip(places, part, strict=False), further=part[len(places) :])
            agenda_id = named.get(AGENDA_ID, "-") if isinstance(named, dict) else named
            said = {"type": event["type"], "insight_id": event.get("insight_id"), field: named}
            yield f"topic/{topic}/{agenda_id}", scrubbed(said)


def operations_of(event: Json) -> Iterator[tuple[str, Json]]:
    """What an event of an attempt says of each operation."""
    for field in OPERATIONS & event.keys() if is_of_attempt(event) else ():
        for one in event[field]:
            name = one.get("name") or one["operation"]["name"]
            yield f"{field}/{event[AGENDA_ID]}/{event['attempt']}/{name}", scrubbed(one)


def is_of_attempt(event: Json) -> bool:
    """Whether the event is about an attempt, and so perhaps about operations."""
    return "type" in event and "attempt" in event


def is_shaped(topic: str, event: Json) -> bool:
    """Whether only the fields of the event are kept."""
    return topic in SHAPED or event.get("type") in SHAPED


def is_work(topic: str, event: Json) -> bool:
    """Whether the event comes of work, and not of time that passes."""
    return not is_shaped(topic, event) or bool(PARTS & event.keys())


def scrubbed(node: Json) -> Json:
    """Without what differs."""
    if isinstance(node, dict):
        return {
            name: masked(value) if name in MASKED else scrubbed(settled(name, value))
            for name, value in node.items()
            if name not in DROPPED
        }
    if isinstance(node, list):
        return [scrubbed(one) for one in node]
    if isinstance(node, str):
        for pattern, stand_in in TEXTS:
            node = pattern.sub(stand_in, node)
    return node


def settled(name: str, value: Json) -> Json:
    """Readable, and without a state that may be the last or the one before."""
    if name in UNSETTLED and isinstance(value, dict):
        return {
            field: "#" if field in UNSETTLED_FIELDS else one for field, one in value.items()
        }
    return readable(name, value)


def readable(name: str, value: Json) -> Json:
    """The record within a dead letter."""
    return decoded(base64.b64decode(value)) if name.endswith("_base64") else value


def masked(node: Json) -> Json:
    """Only the names that are in it."""
    if isinstance(node, dict):
        return {name: masked(value) for name, value in node.items()}
    return None if node is None else "#"


def shape(node: Json) -> Json:
    """The names of fields, and of those of what is listed in them."""
    return {
        name: merged(*(shape(one) for one in value if isinstance(one, dict)))
        if isinstance(value, list) and name not in OPERATIONS
        else {}
        for name, value in node.items()
    }


def merged(*shapes: Json) -> Json:
    """All fields of all of these."""
    found: dict[str, Json] = {}
    for one in shapes:
        for name, inner in one.items():
            found[name] = merged(found.get(name, {}), inner)
    return found


# ---- the file, and what differs from it ----


def text(node: Json) -> str:
    """One line of JSON, the same for what is the same."""
    return json.dumps(node, sort_keys=True, ensure_ascii=False)


def written(found: Found) -> str:
    """As JSON, a line for each thing, so that a version control shows what changed."""
    paths = (
        f"{text(path)}: [\n" + ",\n".join(f"  {text(one)}" for one in some) + "\n]"
        for path, some in found.items()
    )
    return "{\n" + ",\n".join(paths) + "\n}\n"


def with_new_names(found: Found) -> Found:
    """The golden file as the code calls everything by now."""
    return {new_path(path): [new_names(one) for one in some] for path, some in found.items()}


def new_path(path: str) -> str:
    """A path by the new names."""
    section, name, *rest = path.split("/", 2)
    kind = {"table": "fields", "answer": "values", "agenda": "values"}.get(section, "topics")
    if section in {"operations", "appended"}:
        return path
    return "/".join([section, renamed(kind, name), *(renamed("values", one) for one in rest)])


def new_names(node: Json) -> Json:
    """Anything in it by the new names."""
    if isinstance(node, dict):
        return {renamed("fields", name): new_names(value) for name, value in node.items()}
    if isinstance(node, list):
        return [new_names(one) for one in node]
    if not isinstance(node, str):
        return node
    topic = plain(node)
    return renamed("values", node) if topic == node else PREFIX + renamed("topics", topic)


def differences(golden: Found, found: Found) -> list[str]:
    """Lines of what is only in the golden file (-), and only in this run (+)."""
    before, now = (
        Counter((path, text(one)) for path, some in one_.items() for one in some)
        for one_ in (with_new_names(golden), found)
    )
    gone = [(path, "-", value) for path, value in (before - now).elements()]
    new = [(path, "+", value) for path, value in (now - before).elements()]
    return [f"{sign} {path}  {value}" for path, sign, value in sorted(gone + new)]


def names() -> GoldenNames:
    """What a run must know of the code as it is now."""
    settings = {renamed("settings", name): value for name, value in SETTINGS.items()}
    return GoldenNames(renamed("topics", "submissions"), settings, is_work)
