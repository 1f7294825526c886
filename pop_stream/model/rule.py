"""A rule: when a record comes on a topic, and it fits a schema, an agenda is submitted.

The agenda of a record has the id `<rule>.<topic's hash>-<partition>-<offset>` and a position in
a series of the rule and that partition. So a record that is read twice, by two processes or
after a crash, is run once.
"""

from hashlib import sha256
from typing import Annotated, Final, Literal, Self

from pydantic import (
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

MAX_RULE_ID: Final = 60
"""Longest id of a rule: its agendas' ids, its series and its consumer group hold it."""

EVENT: Final = "pop.event"
"""The name by which a submission refers to its record: `@<pop.event::/value>`."""

_OURS: Final = ("id", "series", "trace", "template")


class Rule(SharedDefinition):
    """Submits an agenda, or runs a template, for each record of a topic that fits."""

    id: Annotated[str, StringConstraints(pattern=TOPIC_SAFE_PATTERN, max_length=MAX_RULE_ID)]
    title: str = ""
    visibility: Visibility | None = Field(
        default=None,
        description="Who may see it: its owner, also those in `allowed`, or everyone. Unset: "
        "the owner if there is one, else operators alone.",
    )
    topic: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=249)
    ] = Field(description="Whose records are read, as JSON; no topic of the service itself.")
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
    submission: dict[str, JsonValue] = Field(
        description="As in `POST /v1/agendas`: an agenda or a template's run, without `id` and "
        "`series`. @<pop.event::/value> is what the record holds; so are /key, /topic, "
        "/partition and /offset."
    )

    @field_validator("topic")
    @classmethod
    def _topic_is_not_kafkas(cls, topic: str) -> str:
        if topic.startswith("__"):
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
        cls, submission: dict[str, JsonValue], info: ValidationInfo
    ) -> dict[str, JsonValue]:
        if info.context is ACCEPTED:
            return submission
        if wrong := [name for name in _OURS if name in submission]:
            msg = f"has {wrong[0]}, which each agenda is given; leave it out"
            raise ValueError(msg)
        if ("template_id" in submission) == ("operations" in submission):
            msg = "needs either `template_id`, to run a template, or `operations`, of an agenda"
            raise ValueError(msg)
        for one in find_references(submission):
            if one.name != EVENT and not one.is_run_time:
                msg = f"holds @<{one.name}>, which names nothing; use @<{EVENT}::/value>"
                raise ValueError(msg)
        return submission

    @model_validator(mode="after")
    def _customer_is_its_owner(self, info: ValidationInfo) -> Self:
        if info.context is ACCEPTED:
            return self
        customer_id = self.submission.get("customer_id")
        if customer_id is None:
            msg = "submission: customer_id = nothing: name the customer whose work it is"
            raise ValueError(msg)
        if self.owner is not None and customer_id != self.owner:
            msg = f"submission: customer_id must be the rule's owner, {self.owner!r}"
            raise ValueError(msg)
        return self

    @property
    def effective_visibility(self) -> Visibility:
        """An operator's rule is seen by operators alone, unless it says otherwise."""
        return self.visibility or "owner"

    def __hash__(self) -> int:
        """By its id: schemas have no hash."""
        return hash(self.id)

    def source_id(self, partition: int) -> str:
        """A partition of its topic among all that it may ever read."""
        return f"{sha256(self.topic.encode()).hexdigest()[:10]}-{partition}"
