"""Deduplication: by which key agendas are duplicates of each other, and what becomes of them.

The key is hashed with the customer's id: no customer's agenda is a duplicate of another's. It
is made once, where an agenda comes in, of a value, which a template's tokens may fill in, and
of fields of the agenda itself.
"""

import hashlib
import json
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.events.base import DedupeRule, DuplicatePhase, OnDuplicate
from pop_stream.model.json_types import JsonPointer
from pop_stream.model.references import walk

MAX_WITHIN_S: Final = 30 * 86_400
"""Longest that an end is remembered."""

MAX_DEBOUNCE_S: Final = 86_400

_KEY_CHARACTERS: Final = 32
"""Of the hash: 128 bits."""


class Dedupe(BaseModel):
    """Which agendas of a customer in an insight are the same, and what becomes of the later."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    key: JsonValue = Field(
        default=None, description="Any JSON but null; in a template it may hold tokens."
    )
    fields: Annotated[tuple[JsonPointer, ...], Field(max_length=20)] = Field(
        default=(),
        description="Pointers into the agenda, such as /operations/0/payload/url; their "
        "values are part of the key.",
    )
    during: DuplicatePhase | None = Field(
        default=None,
        alias="while",
        description="Of what is there: `waiting`, as long as it waits, or `running`, until it "
        "has ended. Unset: running, or waiting with debounce.",
    )
    within_s: Annotated[float, Field(gt=0, le=MAX_WITHIN_S)] | None = Field(
        default=None, description="Also for so long after it has run."
    )
    on_duplicate: OnDuplicate = Field(
        default="refuse",
        description="`refuse`: 409 over HTTP; the later one ends cancelled where it is not "
        "noticed before. `keep`: the later one ends cancelled. `replace`, `update`: what waits "
        "ends cancelled; an update has its priority and rank. `reprioritise`: what waits gets "
        "the later one's priority and rank. `debounce`: as replace, and each waits.",
    )
    debounce_s: Annotated[float, Field(gt=0, le=MAX_DEBOUNCE_S)] | None = Field(
        default=None,
        description="With debounce: how long nothing must follow; ten times that at most.",
    )

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if self.key is None and not self.fields:
            msg = "neither key nor fields: give one, or nothing tells what is the same"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _debounces_as_a_whole(self) -> Self:
        if (self.on_duplicate == "debounce") is (self.debounce_s is None):
            msg = "debounce_s and on_duplicate debounce go together; set both or neither"
            raise ValueError(msg)
        if self.on_duplicate == "debounce" and "running" in {self.during}:
            msg = "debounce acts on what waits: leave while out, or set it to waiting"
            raise ValueError(msg)
        return self

    @property
    def phase(self) -> DuplicatePhase:
        """While what is there has duplicates."""
        return self.during or ("waiting" if self.debounce_s else "running")

    def check(self, document: object) -> None:
        """Check that every pointer leads somewhere in the agenda, as JSON.

        Raises:
            SubmissionError: With an issue for each that does not.
        """
        faults: list[Issue] = []
        for index, pointer in enumerate(self.fields):
            try:
                walk(document, pointer)
            except LookupError:
                message = "the agenda has nothing there; correct the pointer"
                faults.append(Issue(f"dedupe.fields[{index}]", pointer, message))
        if faults:
            raise SubmissionError(faults)

    def rule(self, customer_id: str, document: object) -> DedupeRule:
        """What the scheduler gets of it.

        Args:
            customer_id: Whose agenda it is.
            document: The agenda as JSON; not looked at without `fields`.

        Raises:
            LookupError: If a pointer leads nowhere; never for an agenda that was checked.
        """
        parts = [customer_id, self.key, *(walk(document, one) for one in self.fields)]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return DedupeRule(
            key=hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS],
            during=self.phase,
            on_duplicate=self.on_duplicate,
            within_s=self.within_s or 0.0,
            debounce_s=self.debounce_s or 0.0,
        )
