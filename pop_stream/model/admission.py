"""What insights and templates ask of an agenda, and of its customer, before it is let in."""

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import BaseModel, Field, JsonValue, ValidationInfo, model_validator

from pop_stream.model.agenda import Id, Name
from pop_stream.model.payload_schema import schema_error

ACCEPTED: Final[Mapping[str, bool]] = {"accepted": True}
"""The context in which a definition is read that was accepted before."""

Label = Id
"""A word that an operator gives customers."""

Labels = Annotated[tuple[Label, ...], Field(max_length=100)]


class AdmissionFields(BaseModel):
    """What insights and templates have in common here."""

    enabled: bool = Field(
        default=True, description="While it is not, agendas for it are refused."
    )
    needs_labels: Labels = Field(
        default=(), description="Only agendas of customers with all of these `labels`."
    )


class PayloadFields(BaseModel):
    """What insights ask of payloads."""

    payload_schemas: dict[Name, dict[str, JsonValue] | bool] = Field(
        default_factory=dict,
        max_length=200,
        description="By operation type, the JSON schema of payloads; `false` takes no "
        "operation of that type. Payloads with references are known only when they run.",
    )

    @model_validator(mode="after")
    def _schemas_are_some(self, info: ValidationInfo) -> Self:
        # Not again of what was accepted: a start reads thousands.
        for kind, schema in self.payload_schemas.items():
            if info.context is ACCEPTED:
                break
            if fault := schema_error(schema):
                msg = f"payload_schemas of {kind!r} cannot be used: {fault}"
                raise ValueError(msg)
        return self
