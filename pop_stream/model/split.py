"""How the payload of a template's run is divided among child agendas.

Which attributes of a payload are lists that can be cut, in which order, is the template's; what
is cut, and how finely, each payload says by itself. `policy.splitting` has the rules.
"""

from datetime import date
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    field_validator,
    model_validator,
)

from pop_stream.model.json_types import WHOLE_NUMBER
from pop_stream.model.trigger import zone_of

MAX_CHILDREN: Final = 100_000
"""Most children that a template may allow."""

MAX_ATTRIBUTES: Final = 16
"""Most attributes of one schema."""

DAY: Final = "day"
"""The attribute that a period is cut along."""

Attribute = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
]
SchemaName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Attributes = Annotated[tuple[Attribute, ...], Field(max_length=MAX_ATTRIBUTES)]


class Split(BaseModel):
    """Divides a run among child agendas, of which each has a part of the payload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attributes: Attributes = Field(
        default=(),
        description="Attributes that can be cut, in the singular, the outermost first.",
    )
    schemas: Annotated[dict[SchemaName, Attributes], Field(max_length=100)] = Field(
        default_factory=dict,
        description="Other lists of attributes; a payload names one as `split_schema`.",
    )
    timezone: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None,
        description="Where the day of a nominal instant is taken; else its own offset counts.",
    )
    holidays: Annotated[tuple[date, ...], Field(max_length=1_000)] = Field(
        default=(), description="Besides Saturdays and Sundays, no working days."
    )
    max_children: Annotated[int, Field(ge=1, le=MAX_CHILDREN), WHOLE_NUMBER] = Field(
        default=10_000, description="A payload that comes to more is refused."
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Of the agenda that splits, such as `default_insight`; children have those "
        "of the template's agenda.",
    )

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str | None) -> str | None:
        if name is not None:
            zone_of(name)
        return name

    @model_validator(mode="after")
    def _attributes_are_singular(self) -> Self:
        for attributes in (self.attributes, *self.schemas.values()):
            _check(attributes)
        return self


def _check(attributes: tuple[str, ...]) -> None:
    """Refuse what would make a payload ambiguous.

    Raises:
        ValueError: If a name is plural, reserved or there twice.
    """
    for name in attributes:
        if name.endswith("s"):
            msg = (
                f"attribute {name!r} ends in s: name it in the singular, {name.rstrip('s')!r}; "
                "payloads may say either"
            )
            raise ValueError(msg)
        if name == DAY:
            msg = f"attribute {DAY!r} is that of periods, and always there; leave it out"
            raise ValueError(msg)
        if attributes.count(name) > 1:
            msg = f"attribute {name!r} is listed twice; list it once"
            raise ValueError(msg)
