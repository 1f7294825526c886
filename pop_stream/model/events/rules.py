"""What rules read, do and tell.

- `pop.agenda-ends`, keyed by agenda: how agendas have ended, while a rule waits for that.
- `pop.idle-insights`, keyed by insight: which have become idle, while a rule waits for that.
- `pop.rule-actions`: what rules do that needs the database; the rollup's process does it.
- `pop.rule-states`, compacted: what became of a rule's records, as whoever reads them says.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, UnsetType, field

from pop_stream.model.events.base import Count, Event, Instant
from pop_stream.model.signal import MAX_KEEP_S

POSITION_HEADER: Final = "pop-position"
"""Of an end: the partition of `pop.agenda-events` where it was reported, `/`, and its position
there. An end that is published again has the same. Of an idle insight: 0, `/`, and the number
of the pause of `IDLE_PAUSE_S` seconds since 1970 in which it was reported."""

IDLE_PAUSE_S: Final = 10
"""Least seconds between two reports that an insight is idle."""


class EndedAgenda(Event, frozen=True, tag="agenda.ended"):
    """How an agenda has ended; once for each attempt that it ends with.

    Attributes:
        agenda_id: Whole, with the customer that chose it.
        state: `succeeded`, `failed`, `cancelled` or `expired`.
        results: Of operations, by name; none if they are too large together.
    """

    agenda_id: str
    customer_id: str
    insight_id: str
    state: str
    attempt: Count
    title: str = ""
    link_id: str | None = None
    template_id: str | None = None
    external_id: str | None = None
    message: str = ""
    accepted_at: Instant | None = None
    ended_at: Instant | None = None
    results: dict[str, Raw] = field(default_factory=dict)


class InsightIdled(Event, frozen=True, tag="insight.idle"):
    """Runners of an insight stand idle, and none of its agendas is there for them.

    Attributes:
        at: When it was seen.
        free_runners: Those that are surely free; 0 if nothing is known of its runners.
        running: Its agendas that others of its runners have.
    """

    insight_id: str
    at: Instant
    free_runners: Count = 0
    running: Count = 0


class LinkCommanded(Event, frozen=True):
    """A rule wants the agendas of a customer's link, accepted up to `at`, commanded."""

    rule_id: str
    at: Instant
    action: Literal["cancel", "release"]
    customer_id: str
    link_id: str
    reason: str = ""


class SignalGiven(Event, frozen=True):
    """A rule gives a customer a signal, as of `at`."""

    rule_id: str
    at: Instant
    customer_id: str
    name: str
    keep_s: Annotated[float, Meta(ge=0, le=MAX_KEEP_S)]
    payload: Raw | UnsetType = UNSET


RuleActed = LinkCommanded | SignalGiven

MAX_SHOWN: Final = 500
"""Longest text of a state, in characters."""

WHOLE: Final = -1
"""In place of a partition: the row is about the rule as a whole."""


class RuleState(Event, frozen=True):
    """What became of the records of one partition since the rule is defined.

    Counts may miss the last second before a crash, and count again what is read again.

    Attributes:
        source: What the rule waits for: a topic, or an event of the service.
        partition: Of the topic; `WHOLE` for a row that only says why nothing is read.
        fired: Records that led to what the rule does.
        filtered: Those that do not fit.
        unreadable: Those that are no JSON.
        failures: Those that fit, and of which what the rule does was refused.
        last_failure: Why the last of these was.
        fault: Why nothing is read; empty if that is not so.
    """

    rule_id: str
    source: str
    partition: int = WHOLE
    fired: Count = 0
    filtered: Count = 0
    unreadable: Count = 0
    failures: Count = 0
    last_fired_at: Instant | None = None
    last_failure_at: Instant | None = None
    last_failure: str = ""
    fault: str = ""

    @property
    def key(self) -> str:
        """Of its record."""
        return rule_state_key(self.rule_id, self.partition)


def rule_state_key(rule_id: str, partition: int) -> str:
    """The key of the row about a rule and a partition."""
    return f"{rule_id}/{partition}"
