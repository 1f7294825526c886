"""Counts what becomes of rules' records: rows of `pop.rule-states` for people, and metrics."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from pop_stream.model.events.rules import MAX_SHOWN, WHOLE, RuleState, rule_state_key
from pop_stream.policy.rules import PassedBy
from pop_stream.telemetry.histograms import BoundedLabels

RuleOutcome = PassedBy | Literal["fired", "failed"]

KnownState = Callable[[str], RuleState | None]
"""The last row of a key, as far as it is known here."""


class RuleMetrics:
    """Counts records of all rules, by what became of them; at most so many rules by name.

    Args:
        registry: Where it is shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rules = BoundedLabels()
        self._records = Counter(
            "pop_rule_records",
            "Records that rules have read, by what became of them.",
            ["rule", "outcome"],
            registry=registry,
        )

    def count(self, rule_id: str, outcome: RuleOutcome) -> None:
        """One record more."""
        [shown] = self._rules.of((rule_id,))
        self._records.labels(shown, outcome).inc()


_FIELDS: Final[dict[RuleOutcome, str]] = {
    "fired": "fired",
    "filtered": "filtered",
    "unreadable": "unreadable",
    "failed": "failures",
}


class RuleCounts:
    """What became of one rule's records, by partition, from where the rows before left off.

    Args:
        rule_id: The rule.
        source: What it waits for; rows about another source are of no account.
        known: The rows that are written.
        metrics: Counts the same.
    """

    def __init__(
        self, rule_id: str, source: str, known: KnownState, metrics: RuleMetrics
    ) -> None:
        self._rule_id = rule_id
        self._source = source
        self._known = known
        self._metrics = metrics
        self._states: dict[int, RuleState] = {}
        self._changed: set[int] = set()

    def keep(self, partitions: Iterable[int]) -> None:
        """Go on with these partitions; others are somebody else's to count."""
        kept = set(partitions)
        self._states = {one: self._states.get(one) or self._start(one) for one in kept}
        self._changed &= kept

    def count(
        self, partition: int, outcome: RuleOutcome, at: datetime, *, failure: str = ""
    ) -> None:
        """One record more.

        Args:
            partition: Of the topic.
            outcome: What became of it.
            at: When it was handled.
            failure: Why it failed, if it has.
        """
        self._metrics.count(self._rule_id, outcome)
        state = self._states.get(partition) or self._start(partition)
        name = _FIELDS[outcome]
        changes: dict[str, object] = {name: getattr(state, name) + 1}
        if outcome == "fired":
            changes["last_fired_at"] = at
        elif outcome == "failed":
            changes |= {"last_failure_at": at, "last_failure": failure[:MAX_SHOWN]}
        self._states[partition] = replace(state, **changes)
        self._changed.add(partition)

    def take_changed(self) -> Sequence[RuleState]:
        """The rows that are to be written anew; none at a second call."""
        changed = [self._states[one] for one in sorted(self._changed)]
        self._changed.clear()
        return changed

    def with_fault(self, fault: str) -> RuleState | None:
        """The row that says why nothing is read; None if what is written says the same."""
        before = self._known(rule_state_key(self._rule_id, WHOLE))
        if (before.fault if before else "") == fault:
            return None
        return RuleState(rule_id=self._rule_id, source=self._source, fault=fault)

    def _start(self, partition: int) -> RuleState:
        known = self._known(rule_state_key(self._rule_id, partition))
        if known is not None and known.source == self._source:
            return known
        return RuleState(rule_id=self._rule_id, source=self._source, partition=partition)
