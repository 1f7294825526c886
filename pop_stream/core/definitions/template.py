"""An agenda template: an agenda with tokens, and what a run must bring to fill them in."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    create_model,
    model_validator,
)

from pop_stream.core.agendas import references
from pop_stream.core.agendas.agenda import Agenda, OwnId
from pop_stream.core.definitions.payload_schema import schema_error
from pop_stream.core.definitions.sharing import SharedDefinition
from pop_stream.core.values.own_ids import foreign_id_issue

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


class AgendaTemplate(SharedDefinition):
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
    def _schema_is_one(self) -> Self:
        if self.payload_schema is None:
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
