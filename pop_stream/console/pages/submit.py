"""Pages that submit: the templates that a viewer sees, and a form made of one's schema.

The form asks for parameters, for the payload's fields as far as the schema lists them, and for
a few fields of the agenda. The API alone judges what is sent; here text becomes JSON, and what
the API finds wrong stands at the field that it names, with all that was typed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec
from multidict import MultiMapping

from pop_stream.client import (
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiUnauthenticatedError,
)
from pop_stream.console.layout import title_and_status
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import ForbiddenError, Issue, SubmissionError
from pop_stream.model.identity import Role
from pop_stream.model.template import AgendaTemplate
from pop_stream.model.validation import path_of

PAGE: Final = 50
"""Templates of one page."""

MAX_FIELDS: Final = 100
"""Properties of a schema that have a field each; of a schema with more, the payload is one."""

Control = Literal["text", "number", "yes_no", "choice", "json"]

_PAYLOAD: Final = "payload"
_CONTROLS: Final[Mapping[str, Control]] = {
    "string": "text",
    "number": "number",
    "integer": "number",
    "boolean": "yes_no",
}


@dataclass(frozen=True, slots=True)
class FormField:
    """One thing that a form asks for.

    Attributes:
        name: As the API calls it in what it finds wrong: `payload.reel`.
        part: Of the request, such as `params`; empty for a field of the agenda.
        key: Within that part; None for all the rest of it, as a JSON object.
        note: What is to be known beside the label.
        choices: JSON and label of each value that may be chosen.
    """

    name: str
    label: str
    part: str = ""
    key: str | None = None
    control: Control = "text"
    is_required: bool = False
    note: str = ""
    choices: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class FilledField:
    """A field with what was typed, and what is wrong with that."""

    field: FormField
    text: str
    faults: Sequence[str]


async def submit(view: PageView) -> Page:
    """The templates to choose from, or the form of the one that the address names.

    Raises:
        ForbiddenError: If the viewer may not submit.
    """
    _expect_role(view)
    template_id = view.query.get("template_id", "")
    if template_id:
        template = (await view.client.templates.get(template_id)).definition
        fields = form_fields(template, is_operator=view.is_operator)
        return _form_page(template, fields, {"id": str(uuid4())})
    listed = await view.client.templates.page(
        fields=("id", "title", "description", "owner"),
        limit=PAGE,
        cursor=view.query.get("cursor") or None,
    )
    values = {"templates": listed.items, "total": listed.total, "next": listed.next}
    return Page("submit.html", "Submit", values)


async def run_template(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Submit what the form says; the form again, with what is wrong, if it is refused.

    Raises:
        ForbiddenError: If the viewer may not submit.
        NotFoundError: If there is no such template that the viewer sees.
    """
    _expect_role(view)
    template_id = form.get("template_id", "")
    template = (await view.client.templates.get(template_id)).definition
    typed = {name: str(text) for name, text in form.items()}
    fields = form_fields(template, is_operator=view.is_operator)
    call, issues = _call(fields, typed)
    if issues:
        return _form_page(template, fields, typed, SubmissionError(issues))
    try:
        accepted = await view.client.templates.run(template_id, call)
    except (ApiUnauthenticatedError, ApiForbiddenError, ApiNotFoundError):
        raise
    except ApiError as error:
        return _form_page(template, fields, typed, error)
    return f"/agendas/{accepted.id}?did=submit"


def form_fields(template: AgendaTemplate, *, is_operator: bool) -> Sequence[FormField]:
    """What the form of a template asks for, in order."""
    return [
        *_param_fields(template),
        *_payload_fields(template.payload_schema),
        *_agenda_fields(template, is_operator=is_operator),
    ]


def _expect_role(view: PageView) -> None:
    if not view.may(Role.SUBMIT):
        msg = "submitting needs the role submit; ask an operator for a key that has it"
        raise ForbiddenError(msg)


# ---- fields ----


def _param_fields(template: AgendaTemplate) -> Iterator[FormField]:
    for name, param in template.params.items():
        default = f"if left empty: {_written(param.default)}" if param.has_default else ""
        yield FormField(
            f"params.{name}",
            name,
            part="params",
            key=name,
            control=_CONTROLS.get(param.type, "json"),
            is_required=param.required,
            note="; ".join(one for one in (param.description, default) if one),
        )


def _payload_fields(schema: Mapping[str, Any] | bool | None) -> Iterator[FormField]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    is_listed = isinstance(properties, Mapping) and 0 < len(properties) <= MAX_FIELDS
    if not isinstance(schema, Mapping) or not is_listed or not isinstance(properties, Mapping):
        yield FormField(_PAYLOAD, "Payload", part=_PAYLOAD, control="json")
        return
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    for key, one in properties.items():
        yield _property_field(key, one, is_required=key in required)
    if schema.get("additionalProperties") is not False:
        yield FormField(
            _PAYLOAD,
            "Other fields of the payload",
            part=_PAYLOAD,
            control="json",
            note='a JSON object, such as {"more": 1}',
        )


def _property_field(key: str, schema: object, *, is_required: bool) -> FormField:
    rules = schema if isinstance(schema, Mapping) else {}
    kind, values = rules.get("type"), rules.get("enum")
    control = _CONTROLS.get(kind, "json") if isinstance(kind, str) else "json"
    choices: Sequence[tuple[str, str]] = ()
    if isinstance(values, list) and 0 < len(values) <= MAX_FIELDS:
        control, choices = "choice", [(_json(one), _written(one)) for one in values]
    label, note = rules.get("title"), rules.get("description")
    return FormField(
        path_of((_PAYLOAD, key), document=_PAYLOAD),
        label if isinstance(label, str) and label else key,
        part=_PAYLOAD,
        key=key,
        control=control,
        is_required=is_required,
        note=note if isinstance(note, str) else "",
        choices=choices,
    )


def _agenda_fields(template: AgendaTemplate, *, is_operator: bool) -> Iterator[FormField]:
    if is_operator:
        own = template.agenda.get("customer_id")
        note = f"if left empty: {own}" if isinstance(own, str) and own else ""
        yield FormField("customer_id", "Customer", note=note, is_required=not own)
    yield FormField("title", "Title")
    yield FormField(
        "priority",
        "Priority",
        control="choice",
        choices=[(str(one), str(one)) for one in range(1, 10)],
        note="1 goes first, among the customer's own",
    )
    yield FormField("hold", "Held until it is released", control="yes_no")


# ---- from text to JSON, and back ----


def _call(
    fields: Sequence[FormField], typed: Mapping[str, str]
) -> tuple[Mapping[str, object], Sequence[Issue]]:
    """The request that a form says, and which of its texts are no JSON."""
    call: dict[str, Any] = {}
    issues: list[Issue] = []
    if typed.get("id"):
        call["id"] = typed["id"]
    for field in fields:
        text = typed.get(field.name, "")
        if not text.strip():
            continue
        try:
            value = _value(field, text)
        except (ValueError, RecursionError) as error:
            issues.append(
                Issue(field.name, text[:200], f"is no JSON: {error}; a text needs quotes")
            )
            continue
        _put(call, field, value, issues)
    return call, issues


def _put(call: dict[str, Any], field: FormField, value: object, issues: list[Issue]) -> None:
    if not field.part:
        call[field.name] = value
    elif field.key is not None:
        call.setdefault(field.part, {})[field.key] = value
    elif field.part not in call:
        call[field.part] = value
    elif isinstance(value, dict):
        call[field.part] = value | call[field.part]
    else:
        issues.append(Issue(field.name, _json(value)[:200], "must be a JSON object"))


def _value(field: FormField, text: str) -> object:
    """What a text stands for.

    Raises:
        ValueError: If it should be JSON, and is none.
    """
    if field.control == "text":
        return text
    if field.control == "number":
        try:
            return msgspec.json.decode(text.strip().replace(",", "."))
        except ValueError:
            return text  # the API says what it must be
    return msgspec.json.decode(text)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _written(value: object) -> str:
    """A value as people write it: text without quotes."""
    return value if isinstance(value, str) else _json(value)


# ---- the page ----


def _form_page(
    template: AgendaTemplate,
    fields: Sequence[FormField],
    typed: Mapping[str, str],
    error: ApiError | SubmissionError | None = None,
) -> Page:
    issues = error.issues if error else ()
    filled, elsewhere = _filled(fields, typed, issues)
    return Page(
        "submit_form.html",
        f"Submit {template.title or template.id}",
        {
            "template": template,
            "agenda_id": typed.get("id", ""),
            "groups": [
                (title, [one for one in filled if one.field.part == part])
                for title, part in (
                    ("Parameters", "params"),
                    ("Payload", _PAYLOAD),
                    ("Agenda", ""),
                )
            ],
            "elsewhere": elsewhere,
            "detail": str(error) if error and not issues else "",
            "is_refused": error is not None,
        },
        status=title_and_status(error)[1] if error else HTTPStatus.OK,
    )


def _filled(
    fields: Sequence[FormField], typed: Mapping[str, str], issues: Sequence[Issue]
) -> tuple[Sequence[FilledField], Sequence[Issue]]:
    """The fields with what is wrong with each, and what belongs to none."""
    at_field: dict[str, list[str]] = {one.name: [] for one in fields}
    elsewhere: list[Issue] = []
    for issue in issues:
        name = _field_of(issue.field, at_field)
        if name is None:
            elsewhere.append(issue)
        else:
            at_field[name].append(issue.message)
    filled = [FilledField(one, typed.get(one.name, ""), at_field[one.name]) for one in fields]
    return filled, elsewhere


def _field_of(path: str, known: Mapping[str, object]) -> str | None:
    """The field whose value holds the place that an issue names; None if there is none."""
    inside = [one for one in known if path == one or path.startswith((f"{one}.", f"{one}["))]
    return max(inside, key=len, default=None)
