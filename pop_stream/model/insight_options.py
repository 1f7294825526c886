"""What an insight's definition says beyond its own numbers.

How failures slow it down, and by what a customer's own agendas are ordered.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pop_stream.model.events.base import MAX_RANK
from pop_stream.model.json_types import WHOLE_NUMBER, JsonPointer

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of a whole: 0 is none of it, 1 all of it."""


class HealthScaling(BaseModel):
    """How far failed and lost attempts, as seen lately, lower what an insight has in flight.

    Between `…_from` and `…_to` the coefficient falls evenly from 1 to `least`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures_from: Share = Field(
        default=0.2, description="Failed attempts, as a part of all, that change nothing yet."
    )
    failures_to: Share = Field(default=0.8, description="From here on only `least` is left.")
    losses_from: Share = Field(
        default=0.1, description="Attempts that fell silent, as a part of all, likewise."
    )
    losses_to: Share = Field(default=0.5, description="From here on only `least` is left.")
    least: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.1, description="Left at the worst: some attempts show when it is over."
    )
    half_life_s: Annotated[float, Field(ge=1, le=86_400)] = Field(
        default=60.0, description="After so long an attempt counts half."
    )
    min_attempts: Annotated[int, Field(ge=1, le=100_000), WHOLE_NUMBER] = Field(
        default=20, description="Fewer recent attempts than this say nothing."
    )

    @model_validator(mode="after")
    def _ramps_rise(self) -> "HealthScaling":
        for what in ("failures", "losses"):
            start, end = getattr(self, f"{what}_from"), getattr(self, f"{what}_to")
            if start >= end:
                msg = (
                    f"{what}_from {start:g} is not below {what}_to {end:g}: the coefficient "
                    f"falls between the two; lower {what}_from or raise {what}_to"
                )
                raise ValueError(msg)
        return self


RankedBy = Literal["fixed", "deadline", "age_of", "staleness", "entry_point"]

_NEEDED: Final = {
    "fixed": {"rank"},
    "deadline": set(),
    "age_of": {"field"},
    "staleness": {"field"},
    "entry_point": {"name"},
}
"""Which of `rank`, `field` and `name` each kind has."""


class Ranker(BaseModel):
    """By what an insight ranks a customer's agendas of one priority that name no rank.

    A rank is computed once, where the agenda comes in, least first, and orders it among its
    customer's own only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: RankedBy = Field(
        description="`fixed`: all alike. `deadline`: by `expires_at`, the soonest first. "
        "`age_of`: by an instant in the agenda, the oldest first. `staleness`: 1 of priority "
        "1, 2 if it never ran, else from 3, longest ago, to 1000. `entry_point`: by a function "
        "of the operator's."
    )
    rank: Annotated[int, Field(ge=0, le=MAX_RANK), WHOLE_NUMBER] | None = Field(
        default=None, description="With fixed."
    )
    field: JsonPointer | None = Field(
        default=None,
        description="With age_of and staleness: where in the agenda the instant is, as text or "
        "seconds since 1970, such as /params/last_run_at. Without one there, age_of takes the "
        "present, and staleness that it never ran.",
    )
    grace_s: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        default=0.0, description="With staleness: so long after a run none is stale."
    )
    horizon_s: Annotated[float, Field(gt=0, le=315_360_000)] = Field(
        default=604_800.0, description="With staleness: after so long beyond the grace it is 3."
    )
    name: str | None = Field(
        default=None,
        max_length=200,
        description="With entry_point: in the group pop_stream.rankers.",
    )

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        given = {one for one in ("rank", "field", "name") if getattr(self, one) is not None}
        needed = _NEEDED[self.by]
        if given != needed:
            wanted = f"give {', '.join(sorted(needed)) or 'none'} of rank, field and name"
            msg = f"by {self.by}: {wanted}, not {', '.join(sorted(given)) or 'none'}"
            raise ValueError(msg)
        return self
