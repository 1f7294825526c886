"""What is asked and answered about rules, beside their definitions."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.errors import Issue
from pop_stream.model.json_types import WHOLE_NUMBER

_Header = Annotated[str, StringConstraints(max_length=4_096)]


class RuleSample(BaseModel):
    """A record as it might come on a rule's topic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: JsonValue = Field(description="What the record holds.")
    key: Annotated[str, StringConstraints(max_length=4_096)] | None = None
    headers: Annotated[dict[str, _Header], Field(max_length=100)] = Field(
        default_factory=dict, description="By name; those of a trace say how deep a chain is."
    )
    partition: Annotated[int, Field(ge=0, le=100_000), WHOLE_NUMBER] = 0
    offset: Annotated[int, Field(ge=0, le=2**53 - 1), WHOLE_NUMBER] = 0


class RuleTest(ResponseModel, frozen=True):
    """What a record would lead to; nothing of it is done.

    Attributes:
        matches: Whether the record fits.
        issues: Why it does not; or, if it does, why what the rule does would be refused.
        hops: How many rules would have led to it, this one included; null if it does not fit.
        action: Which field of the rule says what is done; null if it does not fit.
        agenda_id: Of the agenda; null if it does not fit.
        agenda: What would be submitted; null if it is refused.
        insight_id: Where it would go; null if it is refused.
        target: Of what is no submission: the link, or the signal, as it would be.
    """

    matches: bool
    issues: tuple[Issue, ...] = ()
    hops: int | None = None
    agenda_id: str | None = None
    agenda: dict[str, Any] | None = None
    insight_id: str | None = None
    action: Literal["submission", "cancel", "release", "signal"] | None = None
    target: dict[str, Any] | None = None


class RuleProgress(ResponseModel, frozen=True):
    """What became of a rule's records, as of a second ago.

    Attributes:
        status: In a word; `waiting` if nothing can be read, and `fault` says why.
        fault: Why nothing is read; empty if that is not so.
        fired: Records that led to what the rule does.
        filtered: Those that do not fit.
        unreadable: Those that are no JSON.
        failures: Those that fit, and of which what the rule does was refused.
        last_fired_at: When the last one led to something; null if none did.
        last_failure_at: When the last one failed; null if none did.
        last_failure: Why it did.
    """

    status: Literal["reading", "waiting", "paused"]
    fault: str
    fired: int
    filtered: int
    unreadable: int
    failures: int
    last_fired_at: Instant | None
    last_failure_at: Instant | None
    last_failure: str
