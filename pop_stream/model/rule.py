"""A rule: when something comes, and it fits a schema, something is done.

What comes is a record of a topic of the user's, the end of an agenda, a definition that was
changed, or an insight whose runners have become idle. What is done: an agenda is submitted,
agendas of a link are cancelled or released, or a signal is given.

A submitted agenda has the id `<rule>.<source's hash>-<place>-<position>` and that position in a
series of the rule and the place, which of a record are its partition and offset. So what is
read twice, by two processes or after a crash, is run once.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pop_stream.model.admission import ACCEPTED
from pop_stream.model.identity import Visibility
from pop_stream.model.ids import TOPIC_SAFE_PATTERN
from pop_stream.model.json_types import WHOLE_NUMBER
from pop_stream.model.payload_schema import schema_error
from pop_stream.model.references import find as find_references
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.signal import DEFAULT_KEEP_S, MAX_KEEP_S

MAX_RULE_ID: Final = 60
"""Longest id of a rule: its agendas' ids, its series and its consumer group hold it."""

EVENT: Final = "pop.event"
"""The name by which a rule refers to what came: `@<pop.event::/value>`."""

RuleEvent = Literal["agenda.ended", "definition.changed", "insight.idle"]
"""What of the service itself a rule may wait for."""

RuleAction = Literal["submission", "cancel", "release", "signal"]

ACTIONS: Final[tuple[RuleAction, ...]] = ("submission", "cancel", "release", "signal")
"""The fields that say what is done."""

_OURS: Final = ("id", "series", "trace", "template")
_Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class LinkTarget(BaseModel):
    """The agendas of a customer that have a link."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    customer_id: _Text
    link_id: _Text
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class SignalToGive(BaseModel):
    """A signal, as in `POST /v1/signals/{name}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    customer_id: _Text
    name: _Text
    payload: JsonValue = None
    keep_s: Annotated[float, Field(ge=1, le=MAX_KEEP_S, allow_inf_nan=False)] = DEFAULT_KEEP_S


class Rule(SharedDefinition):
    """Does something about whatever comes and fits."""

    id: Annotated[str, StringConstraints(pattern=TOPIC_SAFE_PATTERN, max_length=MAX_RULE_ID)]
    title: str = ""
    visibility: Visibility | None = Field(
        default=None,
        description="Who may see it: its owner, also those in `allowed`, or everyone. Unset: "
        "the owner if there is one, else operators alone.",
    )
    topic: (
        Annotated[
            str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=249)
        ]
        | None
    ) = Field(
        default=None,
        description="Whose records are read, as JSON; no topic of the service itself.",
    )
    on: RuleEvent | None = Field(
        default=None,
        description="In place of a topic: ends of agendas, the owner's alone if there is one; "
        "or, for operators' rules, changes of definitions, or insights that become idle.",
    )
    start: Literal["latest", "earliest"] = Field(
        default="latest",
        description="Where it begins in a partition that it has never read: with what comes "
        "from then on, or with all that there is.",
    )
    where: dict[str, JsonValue] | bool = Field(
        default=True, description="JSON schema; records whose value does not fit are passed by."
    )
    max_per_s: Annotated[float, Field(ge=0.1, le=1_000)] = Field(
        default=10.0,
        description="Most agendas it submits per second; further records wait in the topic.",
    )
    max_hops: Annotated[int, Field(ge=1, le=100), WHOLE_NUMBER] = Field(
        default=5,
        description="Most rules, this one included, that may have led to an agenda one after "
        "the other; one more is refused.",
    )
    paused: bool = Field(default=False, description="Records wait in the topic while it is.")
    submission: dict[str, JsonValue] | None = Field(
        default=None,
        description="As in `POST /v1/agendas`: an agenda or a template's run, without `id` and "
        "`series`. @<pop.event::/value> is what the record holds; so are /key, /topic, "
        "/partition and /offset.",
    )
    cancel: LinkTarget | None = Field(
        default=None, description="In place of a submission: the link's agendas are cancelled."
    )
    release: LinkTarget | None = Field(
        default=None, description="In place of a submission: the link's agendas are released."
    )
    signal: SignalToGive | None = Field(
        default=None, description="In place of a submission: this signal is given."
    )

    @field_validator("topic")
    @classmethod
    def _topic_is_not_kafkas(cls, topic: str | None) -> str | None:
        if topic is not None and topic.startswith("__"):
            msg = "is a topic of Kafka itself; use one of yours"
            raise ValueError(msg)
        return topic

    @field_validator("where")
    @classmethod
    def _schema_is_one(
        cls, where: dict[str, JsonValue] | bool, info: ValidationInfo
    ) -> dict[str, JsonValue] | bool:
        if info.context is not ACCEPTED and (fault := schema_error(where)):
            msg = f"cannot be used: {fault}"
            raise ValueError(msg)
        return where

    @field_validator("submission")
    @classmethod
    def _submission_is_sound(
        cls, submission: dict[str, JsonValue] | None, info: ValidationInfo
    ) -> dict[str, JsonValue] | None:
        if info.context is ACCEPTED or submission is None:
            return submission
        if wrong := [name for name in _OURS if name in submission]:
            msg = f"has {wrong[0]}, which each agenda is given; leave it out"
            raise ValueError(msg)
        if ("template_id" in submission) == ("operations" in submission):
            msg = "needs either `template_id`, to run a template, or `operations`, of an agenda"
            raise ValueError(msg)
        return submission

    @model_validator(mode="after")
    def _is_one_rule(self, info: ValidationInfo) -> Self:
        if info.context is ACCEPTED:
            return self
        if (self.topic is None) == (self.on is None):
            msg = "on: say what it waits for, by either `topic` or `on`"
            raise ValueError(msg)
        if self.on == "definition.changed" and self.owner is not None:
            msg = (
                "owner: a customer sees no others' definitions; leave it out, or wait for else"
            )
            raise ValueError(msg)
        if self.on == "insight.idle" and self.owner is not None:
            msg = (
                "owner: how busy an insight is shows what others run; leave it out, "
                "or wait for else"
            )
            raise ValueError(msg)
        named = [one for one in ACTIONS if getattr(self, one) is not None]
        if len(named) != 1:
            msg = f"submission: give exactly one of {', '.join(ACTIONS)}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _customer_is_its_owner(self, info: ValidationInfo) -> Self:
        if info.context is ACCEPTED:
            return self
        for one in find_references(self.does):
            if one.name != EVENT and (self.action != "submission" or not one.is_run_time):
                msg = f"{self.action}: @<{one.name}> names nothing; use @<{EVENT}::/value>"
                raise ValueError(msg)
        customer_id = self.does.get("customer_id")
        if customer_id is None:
            msg = f"{self.action}: customer_id = nothing: name the customer whose work it is"
            raise ValueError(msg)
        if self.owner is not None and customer_id != self.owner:
            msg = f"{self.action}: customer_id must be the rule's owner, {self.owner!r}"
            raise ValueError(msg)
        return self

    @property
    def source(self) -> str:
        """What it waits for: a topic, or an event of the service."""
        return self.on or self.topic or ""

    @property
    def action(self) -> RuleAction:
        """Which of `ACTIONS` it says."""
        return next((one for one in ACTIONS if getattr(self, one) is not None), "submission")

    @property
    def does(self) -> dict[str, JsonValue]:
        """What its action says, with tokens as they are written."""
        said = getattr(self, self.action)
        if isinstance(said, BaseModel):
            return said.model_dump(mode="json")
        return dict(said or {})

    @property
    def effective_visibility(self) -> Visibility:
        """An operator's rule is seen by operators alone, unless it says otherwise."""
        return self.visibility or "owner"

    def __hash__(self) -> int:
        """By its id: schemas have no hash."""
        return hash(self.id)

    def source_id(self, place: str) -> str:
        """A place of its source, such as a partition, among all that it may ever read."""
        return f"{sha256(self.source.encode()).hexdigest()[:10]}-{place}"

    def submitted(self, agenda_id: str) -> bool:
        """Whether an agenda is one of its own, by its id."""
        start = f"{self.id}.{self.source_id('')}"
        return agenda_id.startswith(start)
