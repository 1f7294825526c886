"""What an insight's definition says beyond its own numbers: how failures slow it down."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pop_stream.model.json_types import WHOLE_NUMBER

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
