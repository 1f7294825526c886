"""`pop.rule-states`, compacted: what became of a rule's records, as whoever reads them says."""

from typing import Final

from pop_stream.model.events.base import Count, Event, Instant

MAX_SHOWN: Final = 500
"""Longest text of a state, in characters."""

WHOLE: Final = -1
"""In place of a partition: the row is about the rule as a whole."""


class RuleState(Event, frozen=True):
    """What became of the records of one partition since the rule is defined.

    Counts may miss the last second before a crash, and count again what is read again.

    Attributes:
        topic: Which the rule reads.
        partition: Of the topic; `WHOLE` for a row that only says why nothing is read.
        fired: Records that led to what the rule does.
        filtered: Those that do not fit.
        unreadable: Those that are no JSON.
        failures: Those that fit, and of which what the rule does was refused.
        last_failure: Why the last of these was.
        fault: Why nothing is read; empty if that is not so.
    """

    rule_id: str
    topic: str
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
