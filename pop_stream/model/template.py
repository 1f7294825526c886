"""An agenda template: an agenda with tokens, and the agenda that a run makes of it.

A run brings a payload, checked against the template's JSON schema, and parameters. Tokens of
the template's own names are filled in here, at submission; those that name an operation's
result or a built-in name are left for the run. Text that was filled in is not read again,
neither here nor by the run: where the run reads references, in payloads of operations, it is
escaped. So whatever a customer gives for a parameter is data.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    create_model,
    model_validator,
)

from pop_stream.model import references
from pop_stream.model.admission import ACCEPTED, AdmissionFields
from pop_stream.model.agenda import Agenda, OwnId, TemplateRef, parse_agenda
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.payload_schema import payload_issues, schema_error
from pop_stream.model.references import Reference, escaped, escaped_text, pieces, walk
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.split import Split
from pop_stream.model.tenancy import foreign_id_issue
from pop_stream.model.validation import shorten
from pop_stream.model.wait_for import without_unnamed

PAYLOAD_NAMES: Final = ("pop.payload", "pop.transformRequest")
"""Both stand for the payload of the run; the second is what POP also called it."""

RESERVED: Final = "pop."
"""Names that begin so are the system's."""

ParamType = Literal["string", "integer", "number", "boolean", "object", "array"]

ParamName = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\s<>?:@][^<>?:@]*$")
]


class TemplateParam(BaseModel):
    """A parameter that a run may, or must, give."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ParamType = Field(description="What a value must be; a token keeps that type.")
    required: bool = Field(default=False, description="Whether a run without it is refused.")
    default: JsonValue = Field(default=None, description="Of a run that gives none.")
    description: str = ""

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if not self.has_default:
            return self
        if self.required:
            msg = "a required parameter has no use for a default; remove one of the two"
            raise ValueError(msg)
        if not fits(self.type, self.default):
            msg = f"the default is no {self.type}; change it, or the type"
            raise ValueError(msg)
        return self

    @property
    def has_default(self) -> bool:
        """Whether there is a default; null is none."""
        return self.default is not None


def _closed_schema(schema: dict[str, Any]) -> None:
    """Names that are no parameters' are refused, and not let pass with any value."""
    schema["additionalProperties"] = False


class AgendaTemplate(SharedDefinition, AdmissionFields):
    """A kind of agenda that is run by naming it, with a payload and parameters."""

    id: OwnId
    title: str = Field(default="", description="Also of agendas that have none of their own.")
    description: str = ""
    params: dict[ParamName, TemplateParam] = Field(
        default_factory=dict,
        description="Parameters that a run gives, by name.",
        json_schema_extra=_closed_schema,
    )
    static_params: dict[ParamName, JsonValue] = Field(
        default_factory=dict,
        description="Values that are the same for every run, by name.",
        json_schema_extra=_closed_schema,
    )
    payload_schema: dict[str, JsonValue] | bool | None = Field(
        default=None, description="JSON schema of the payload; any payload is taken without."
    )
    agenda: dict[str, JsonValue] = Field(
        description="The agenda, with tokens such as @<pop.payload::/file> in its texts."
    )
    split: Split | None = Field(
        default=None,
        description="A run is divided: `agenda` is then that of each child, and `payload` its "
        "part of the run's, which the schema is about.",
    )

    @model_validator(mode="after")
    def _id_is_its_owners(self) -> Self:
        if fault := foreign_id_issue(self.id, self.owner):
            raise ValueError(fault.message)
        return self

    @model_validator(mode="after")
    def _names_are_its_own(self) -> Self:
        for name in (*self.params, *self.static_params):
            if name.startswith(RESERVED) or name.endswith(references.OUTPUT_SUFFIX):
                msg = (
                    f"no parameter can be called {name!r}: names that begin with {RESERVED!r} "
                    f"are the system's, those that end in {references.OUTPUT_SUFFIX!r} are "
                    "operations' results; choose another"
                )
                raise ValueError(msg)
        if twice := sorted(set(self.params) & set(self.static_params)):
            msg = f"{twice[0]!r} is both in params and in static_params; rename one"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _schema_is_one(self, info: ValidationInfo) -> Self:
        # Not again of what was accepted: a start reads thousands, of which few will be run.
        if self.payload_schema is None or info.context is ACCEPTED:
            return self
        if fault := schema_error(self.payload_schema):
            msg = f"payload_schema cannot be used: {fault}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _tokens_name_something(self) -> Self:
        known = {*PAYLOAD_NAMES, *self.params, *self.static_params}
        for reference in references.find(self.agenda):
            if not reference.is_run_time and reference.name not in known:
                msg = (
                    f"agenda holds @<{reference.name}>, which names nothing: declare "
                    f"{reference.name!r} in params or static_params, or use one of "
                    f"{', '.join(sorted(known)[:8])}; results of operations are "
                    f"@<operation{references.OUTPUT_SUFFIX}>"
                )
                raise ValueError(msg)
        return self


class TemplateCall(BaseModel):
    """What a run brings; fields of the agenda given here win over the template's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    payload: JsonValue = Field(default=None, description="Any JSON; null if there is none.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="Values of the template's declared parameters."
    )


class TemplateRun(TemplateCall):
    """A run on its way through Kafka, or in a list of agendas."""

    template_id: OwnId = Field(description="The template to run.")


OVERRIDES: Final = tuple(
    name
    for name in Agenda.model_fields
    if name not in {"operations", "params", "template", "trace"}
)
"""Fields of the agenda that a run may set."""


def _with_overrides(base: type[TemplateCall], name: str) -> type[TemplateCall]:
    """The model with the agenda's own fields, each optional, as the agenda constrains them."""
    fields: dict[str, Any] = {}
    for one in OVERRIDES:
        info = Agenda.model_fields[one]
        kind: Any = info.annotation
        if info.metadata:
            kind = Annotated[kind, *info.metadata]
        fields[one] = (kind | None, Field(default=None, description=info.description))
    made: type[TemplateCall] = create_model(name, __base__=base, __doc__=base.__doc__, **fields)
    return made


TEMPLATE_CALL: Final = _with_overrides(TemplateCall, "TemplateCall")
"""The body of a run over HTTP, where the path names the template."""

TEMPLATE_RUN: Final = _with_overrides(TemplateRun, "TemplateRun")
"""The same with the template's id."""


def with_own_customer(call: TemplateCall, customer_id: str | None) -> TemplateCall:
    """A customer who names nobody runs a template for itself, whomever that names.

    Args:
        call: A `TEMPLATE_CALL` or `TEMPLATE_RUN`.
        customer_id: Who runs it; None is an operator, for whom it stays as it is.
    """
    if customer_id is None or call.model_dump(include={"customer_id"})["customer_id"]:
        return call
    return call.model_copy(update={"customer_id": customer_id})


def fits(kind: ParamType, value: object) -> bool:
    """Whether a JSON value is of a parameter's type; 3.0 is an integer, true is no number."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            whole = isinstance(value, float) and value.is_integer()
            return whole or (isinstance(value, int) and not isinstance(value, bool))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case _:
            return isinstance(value, list | tuple)


MAX_EXPANDED_CHARACTERS: Final = 1024 * 1024
"""Characters of JSON that all tokens together may bring in: a token may stand a thousand
times in a template, and what it brings may be large."""

_ABSENT: Final = object()


def expand(template: AgendaTemplate, call: TemplateCall, *, version: int) -> Agenda:
    """The agenda that a run of the template submits.

    Args:
        template: With its tokens.
        call: Payload, parameters and the agenda's fields that win over the template's.
        version: Of the template; the agenda remembers it.

    Raises:
        SubmissionError: If the payload breaks the schema, a parameter is missing, unknown or
            of another type, a token leads nowhere, or the outcome is no sound agenda.
    """
    check_call(template, call)
    expansion = _TokenExpansion(_bindings(template, call))
    document = {
        key: expansion.fill(node, f"agenda.{key}", "operations" if key == "operations" else "")
        for key, node in template.agenda.items()
    }
    if expansion.issues:
        raise SubmissionError(expansion.issues)
    document = without_unnamed(document)
    document.setdefault("title", template.title)
    document |= call.model_dump(include=set(OVERRIDES), exclude_none=True, mode="json")
    document["template"] = TemplateRef(id=template.id, version=version).model_dump()
    return parse_agenda(document)


def check_call(template: AgendaTemplate, call: TemplateCall) -> None:
    """Check what a run brings, without what its tokens lead to.

    Raises:
        SubmissionError: If the payload breaks the schema, or a parameter is missing, unknown or
            of another type.
    """
    issues = [
        *_params_issues(template, call.params),
        *_payload_issues(template, call.payload),
    ]
    if issues:
        raise SubmissionError(issues)


def fill(document: Mapping[str, object], names: Mapping[str, object]) -> dict[str, object]:
    """A submission, an agenda or a template's run, with tokens of these names filled in.

    References that the agenda's own run resolves stay as they are.

    Args:
        document: With its tokens.
        names: The document behind each name.

    Raises:
        SubmissionError: If a token names nothing, or leads nowhere.
    """
    expansion = _TokenExpansion(names)
    filled = {
        key: expansion.fill(node, key, "operations" if key == "operations" else "")
        for key, node in document.items()
    }
    if expansion.issues:
        raise SubmissionError(expansion.issues)
    return filled


def _bindings(template: AgendaTemplate, call: TemplateCall) -> Mapping[str, object]:
    """The document behind each name; a parameter that has no value is absent."""
    given = {
        name: call.params.get(name, param.default if param.has_default else _ABSENT)
        for name, param in template.params.items()
    }
    return {**template.static_params, **given, **dict.fromkeys(PAYLOAD_NAMES, call.payload)}


def _params_issues(template: AgendaTemplate, given: Mapping[str, object]) -> Iterator[Issue]:
    declared = template.params
    for name, value in given.items():
        param = declared.get(name)
        if param is None:
            known = ", ".join(sorted(declared)[:8]) or "none"
            yield Issue(
                f"params.{shorten(name)}",
                shorten(value),
                f"template {template.id!r} declares no such parameter; it has: {known}",
            )
        elif not fits(param.type, value):
            message = f"must be of type {param.type}"
            yield Issue(f"params.{name}", shorten(value), message)
    for name, param in declared.items():
        if param.required and name not in given:
            message = f"template {template.id!r} requires it; give a value of type {param.type}"
            yield Issue(f"params.{name}", "nothing", message)


def _payload_issues(template: AgendaTemplate, payload: object) -> Iterator[Issue]:
    if template.payload_schema is not None:
        yield from payload_issues(template.payload_schema, payload, field="payload")


_Place = Literal["operations", "operation", "payload", ""]
"""Where a node of an agenda stands, as far as payloads of operations are concerned."""


def _place_in(place: _Place, key: str = "") -> _Place:
    """Where the items of a list stand, or what an object has under the key."""
    match place, key:
        case "operations", "":
            return "operation"
        case ("operation", "payload") | ("payload", _):
            return "payload"
        case _:
            return ""


def _as_data(node: object, place: _Place) -> object:
    """The node as it must stand there so that the run reads no references in it."""
    if place == "payload":
        return escaped(node)
    if place == "operation" and isinstance(node, Mapping):
        return {key: _as_data(one, _place_in(place, key)) for key, one in node.items()}
    if place == "operations" and isinstance(node, list | tuple):
        return [_as_data(one, "operation") for one in node]
    return node


def _written(literal: str, place: _Place, *, before_token: bool = False) -> str:
    """The text as it must stand there to stand for itself."""
    return escaped_text(literal, before_token=before_token) if place == "payload" else literal


@dataclass(slots=True)
class _TokenExpansion:
    """Fills tokens in, and notes every one that cannot be."""

    bindings: Mapping[str, object]
    issues: list[Issue] = field(default_factory=list)
    expanded_characters: int = 0

    def fill(self, node: object, path: str, place: _Place) -> object:
        """The node with its tokens filled in; `path` says where it stands."""
        if isinstance(node, str):
            return self._fill_text(node, path, place) if "@<" in node else node
        if isinstance(node, Mapping):
            return {
                key: self.fill(one, f"{path}.{key}", _place_in(place, key))
                for key, one in node.items()
            }
        if isinstance(node, list):
            inner = _place_in(place)
            return [self.fill(one, f"{path}[{index}]", inner) for index, one in enumerate(node)]
        return node

    def _fill_text(self, text: str, path: str, place: _Place) -> object:
        parts = [*pieces(text)]
        if len(parts) == 1 and isinstance(parts[0], Reference):
            reference = parts[0]
            if reference.is_run_time:
                return text
            return _as_data(self._node(reference, path), place)
        own = any(isinstance(one, Reference) and not one.is_run_time for one in parts)
        if place == "payload" and not own:
            return text  # as the run reads it
        written = literal = ""
        for one in parts:
            if isinstance(one, Reference) and one.is_run_time:
                written += _written(literal, place, before_token=True) + one.token
                literal = ""
            else:
                literal += one if isinstance(one, str) else self._part(one, path)
        return written + _written(literal, place)

    def _part(self, reference: Reference, path: str) -> str:
        """A token within a longer text, as text."""
        node = self._node(reference, path)
        if isinstance(node, Mapping | list | tuple):
            self._refuse(
                path,
                reference.token,
                "stands inside a text but leads to an object or a list; let it lead to a "
                "text, number, boolean or null, or make it the whole text",
            )
            return ""
        return node if isinstance(node, str) else json.dumps(node)

    def _node(self, reference: Reference, path: str) -> object:
        token = reference.token
        root = self.bindings.get(reference.name, _ABSENT)
        try:
            node = walk(root, reference.pointer)
        except LookupError:
            node = _ABSENT
        if node is not _ABSENT:
            return self._counted(node, token, path)
        if reference.fallback is not None:
            return reference.fallback
        if not reference.null_fallback:
            self._refuse(path, token, _why_absent(reference, is_given=root is not _ABSENT))
        return None

    def _counted(self, node: object, token: str, path: str) -> object:
        """The node, unless all that was filled in grows out of bounds with it."""
        if self.expanded_characters > MAX_EXPANDED_CHARACTERS:
            return None
        self.expanded_characters += len(json.dumps(node))
        if self.expanded_characters > MAX_EXPANDED_CHARACTERS:
            most = f"more than {MAX_EXPANDED_CHARACTERS:,} characters are filled in"
            self._refuse(path, token, f"{most} with it; store large inputs and refer to them")
        return node

    def _refuse(self, path: str, token: str, message: str) -> None:
        if len(self.issues) < SubmissionError.MAX_ISSUES:
            self.issues.append(Issue(shorten(path), shorten(token), message))


def _why_absent(reference: Reference, *, is_given: bool) -> str:
    fallback = "a fallback after '?' would stand in for it"
    if not is_given:
        name = reference.name
        return f"parameter {name!r} was not given and has no default; give it, or {fallback}"
    what = "the payload" if reference.name in PAYLOAD_NAMES else repr(reference.name)
    return f"{what} has nothing at {reference.pointer!r}; {fallback}"
