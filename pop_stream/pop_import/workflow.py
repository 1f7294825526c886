"""Makes submissions of POP's agendas and of its requests to run a template."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.trace import CORRELATION_PATTERN
from pop_stream.pop_import.fields import Fields, ImportOptions, Names, whole_number
from pop_stream.pop_import.objects import one_value

CONVERTED_TYPES: Final[Mapping[str, str]] = {"updateagenda": "append"}
"""Operation types of POP's own that are called otherwise here, in lower case."""

MOST_ATTEMPTS: Final = 20
"""POP's ceiling, whatever an agenda asked for."""

_GENERATOR: Final = "agenda.operation.generator"
_TOKEN: Final = "@<"  # noqa: S105  # a mark in texts
_MARKS: Final = re.compile(r"(@{2,})<([^<>]+>)?")
_DROPPED: Final[Mapping[str, str]] = {
    "progressId": "link_id joins agendas, each of which keeps its own progress",
    "jobId": "nothing ever read it",
    "agendaInsight": "the insight is chosen when the agenda is submitted",
}


def convert_agenda(fields: Fields, names: Names, options: ImportOptions) -> dict[str, Any]:
    """The submission of an agenda of POP's; what is wrong with it is noted."""
    content = _agenda(fields, names, options, is_template=False)
    if cid := _correlation_id(fields):
        content["trace"] = {"correlation_id": cid}
    given = fields.take("id")
    if given is None:
        content["id"] = names.of_content(content)
        fields.mapped("id", None, f"id {content['id']}", "made of the content; POP made one")
    else:
        try:
            content["id"] = names.of("agenda", given)
            fields.mapped("id", given, f"id {content['id']}")
        except SubmissionError as error:
            fields.refuse("id", error.issues[0].message, value=given)
    if not fields.is_refused:
        try:
            parse_agenda(content)
        except SubmissionError as error:
            for issue in error.issues:
                fields.refuse(_pops_path(issue.field), issue.message, value=issue.value)
    return content


def convert_run(fields: Fields, names: Names, options: ImportOptions) -> dict[str, Any]:
    """The submission of a template's run; POP took the payload as JSON in a text."""
    content: dict[str, Any] = {}
    template_id, payload = fields.take("agendaTemplateId"), fields.take("payload")
    try:
        content["template_id"] = names.of("template", template_id)
        fields.mapped("agendaTemplateId", template_id, f"template_id {content['template_id']}")
    except SubmissionError as error:
        fields.refuse("agendaTemplateId", error.issues[0].message, value=template_id)
    try:
        content["payload"] = one_value(payload) if isinstance(payload, str) else payload
        fields.mapped("payload", payload, "payload")
    except SubmissionError as error:
        fields.refuse("payload", error.issues[0].message, value=payload)
    if options.customer:
        content["customer_id"] = options.customer
    fields.drop("cid", "of the request that ran it in POP")
    content["id"] = names.of_content(content)
    return content


def template_agenda(
    agenda: Mapping[str, Any], fields: Fields, names: Names, options: ImportOptions
) -> dict[str, Any]:
    """A template's agenda, whose texts may hold tokens; what is wrong with it is noted."""
    inside = fields.within("agenda", agenda)
    for name in ("id", "cid", "addedTime", "updatedTime"):
        inside.drop(name, "each run has its own")
    content = _agenda(inside, names, options, is_template=True)
    inside.leave_unknown("Agendas", strict=options.strict)
    return content


def _agenda(
    fields: Fields, names: Names, options: ImportOptions, *, is_template: bool
) -> dict[str, Any]:
    content: dict[str, Any] = {}
    _customer(content, fields, names, options, is_template=is_template)
    title, link_id = fields.take("title"), fields.take("linkId")
    if title is not None:
        content["title"] = title
        fields.mapped("title", title, "title")
    if link_id is not None:
        content["link_id"] = _named("linkId", link_id, "link", fields, names)
        fields.mapped("linkId", link_id, f"link_id {content['link_id']}")
    params = _object("params", fields)
    content |= _steering(params, fields)
    if params:
        content["params"] = params
        fields.mapped("params", params, "params")
    operations = fields.take("operations")
    if isinstance(operations, list) and operations:
        content["operations"] = _operations(operations, fields, options)
    else:
        message = "must be a list of at least one operation"
        fields.refuse("operations", message, value=operations)
    for name, why in _DROPPED.items():
        fields.drop(name, why)
    return content


def _customer(
    content: dict[str, Any],
    fields: Fields,
    names: Names,
    options: ImportOptions,
    *,
    is_template: bool,
) -> None:
    customer = fields.take("customerId")
    if customer is not None:
        content["customer_id"] = _named("customerId", customer, "customer", fields, names)
        fields.mapped("customerId", customer, f"customer_id {content['customer_id']}")
    elif options.customer:
        content["customer_id"] = options.customer
        fields.mapped("customerId", None, f"customer_id {options.customer}", "as was asked for")
    elif not is_template:
        fields.refuse("customerId", "is required; give it, or say it with --customer ID")


def _named(field: str, value: object, kind: str, fields: Fields, names: Names) -> str:
    """Our id of a customer or link; what holds a token is left to the run."""
    if isinstance(value, str) and _TOKEN in value:
        return value
    try:
        return names.of(kind, value)
    except SubmissionError as error:
        fields.refuse(field, error.issues[0].message, value=value)
        return ""


def _object(name: str, fields: Fields) -> dict[str, Any]:
    """What an object has in a field, as a copy; empty if it has nothing."""
    value = fields.take(name)
    if value == {}:
        fields.dropped(name, value, "it is empty")
    elif value is not None and not isinstance(value, dict):
        fields.refuse(name, "must be an object", value=value)
    return dict(value) if isinstance(value, dict) else {}


def _steering(params: dict[str, Any], fields: Fields) -> dict[str, Any]:
    """The fields that were params in POP, taken out of the params."""
    content: dict[str, Any] = {}
    if "doNotRun" in params:
        content["hold"] = True
        why = "whatever its value, as in POP; release the agenda to run it"
        fields.mapped("params.doNotRun", params.pop("doNotRun"), "hold true", why)
    most = params.pop("maximumAttempts", None)
    whole = whole_number(most)
    if isinstance(most, str) and _TOKEN in most:
        content["max_attempts"] = most
        fields.mapped("params.maximumAttempts", most, "max_attempts")
    elif whole is not None:
        content["max_attempts"] = kept = min(max(whole, 1), MOST_ATTEMPTS)
        why = "" if kept == whole else f"POP tried 1 to {MOST_ATTEMPTS} times"
        fields.mapped("params.maximumAttempts", most, f"max_attempts {kept}", why)
    elif most is not None:
        message = "must be a whole number; correct it, or leave it out for 3"
        fields.refuse("params.maximumAttempts", message, value=most)
    return content


def _operations(
    operations: Sequence[object], fields: Fields, options: ImportOptions
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place, one in enumerate(operations):
        if isinstance(one, dict):
            found += _operation(fields.within(f"operations[{place}]", one), options)
        else:
            fields.refuse(f"operations[{place}]", "must be an object", value=one)
    return found


def _operation(fields: Fields, options: ImportOptions) -> list[dict[str, Any]]:
    """An operation, and behind it the one that adds what it generates."""
    content: dict[str, Any] = {}
    for name in ("name", "type"):
        value = fields.take(name)
        if isinstance(value, str) and value:
            ours = CONVERTED_TYPES.get(value.casefold(), value) if name == "type" else value
            content[name] = ours
            fields.mapped(name, value, name if ours == value else f"{name} {ours}")
        else:
            fields.refuse(name, "is required, a text; give it", value=value)
    fields.drop("id", "its name identifies it")
    payload = fields.take("payload")
    if payload is not None:
        content["payload"] = _payload(payload, content.get("type"), fields, options)
        fields.mapped("payload", payload, "payload")
    params = _object("params", fields)
    waits_for = params.pop("dependsOn", None)
    if waits_for is not None:
        content["depends_on"] = _depends_on(waits_for, fields)
    generator = params.pop(_GENERATOR, None)
    if params:
        content["params"] = params
        fields.mapped("params", params, "params")
    fields.leave_unknown("Operations", strict=options.strict)
    added = _generated(generator, str(content.get("name", "")), fields)
    return [content, *added]


def _payload(
    payload: object, operation_type: str | None, fields: Fields, options: ImportOptions
) -> object:
    """The payload with its tokens; of an operation that adds some, ours in place of POP's."""
    if operation_type != "append" or not isinstance(payload, dict):
        return _with_our_marks(payload)
    inside = fields.within("payload", payload)
    inside.drop("params", "params choose the insight, which is chosen by then")
    if inside.take("logOnly") is True:
        message = "preview the agenda that would grow instead; remove the operation"
        inside.refuse("logOnly", message, value=True)
    operations = inside.take("operations")
    inside.leave_unknown("Payloads of updateAgenda", strict=options.strict)
    if isinstance(operations, list):
        return {"operations": _operations(operations, inside, options)}
    return {"operations": _with_our_marks(operations)}


def _depends_on(value: object, fields: Fields) -> list[str]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        message = "must be a text: names of operations, comma between"
        fields.refuse("params.dependsOn", message, value=value)
        return []
    found = [one.strip() for one in names if one.strip()]
    fields.mapped("params.dependsOn", value, "depends_on")
    return found


def _generated(generator: object, name: str, fields: Fields) -> list[dict[str, Any]]:
    """The operation that adds what another one has made."""
    if generator is None:
        return []
    field = f"params.{_GENERATOR}"
    pointer = generator.get("operationsJsonPointer") if isinstance(generator, dict) else None
    if not isinstance(generator, dict) or not isinstance(pointer, str):
        fields.refuse(field, "must be an object with operationsJsonPointer", value=generator)
        return []
    if generator.get("logOnly") is True:
        fields.dropped(field, generator, "it only logged what it would add")
        return []
    adding = f"{name}.append"
    why = "its handler must name the fields of operations as they are called here"
    fields.mapped(field, generator, f"the operation {adding} of type append", why)
    operations = f"@<{name}.out::{pointer}>"
    return [{"name": adding, "type": "append", "payload": {"operations": operations}}]


def _with_our_marks(node: object) -> object:
    """The payload with each `@` doubled that only stands before a token: two are one here."""
    if isinstance(node, str):
        return _MARKS.sub(_marked, node) if "@@" in node else node
    if isinstance(node, dict):
        return {name: _with_our_marks(one) for name, one in node.items()}
    if isinstance(node, list):
        return [_with_our_marks(one) for one in node]
    return node


def _marked(found: re.Match[str]) -> str:
    ats, rest = len(found[1]), found[2] or ""
    return "@" * (2 * ats - 1 if rest else 2 * ats) + "<" + rest


def _correlation_id(fields: Fields) -> str | None:
    cid = fields.take("cid")
    if cid is None:
        return None
    if isinstance(cid, str) and re.fullmatch(CORRELATION_PATTERN, cid):
        fields.mapped("cid", cid, "trace.correlation_id")
        return cid
    fields.dropped("cid", cid, f"a correlation id here is of the form {CORRELATION_PATTERN}")
    return None


def _pops_path(field: str) -> str:
    """The field of an agenda as POP calls it."""
    for ours, pops in (
        ("depends_on", "params.dependsOn"),
        ("customer_id", "customerId"),
        ("link_id", "linkId"),
        ("max_attempts", "params.maximumAttempts"),
    ):
        field = field.replace(ours, pops)
    return field
