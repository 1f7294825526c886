"""Submissions that would be refused as duplicates: the scheduler is asked before they are sent.

Only for those whose `dedupe` says so. The scheduler decides again when the agenda reaches it,
and its word counts: of two that are submitted at once both may be let in, and one of them ends
cancelled. While the scheduler does not answer everything is let in.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from pop_stream.model.agenda import dedupe_rule
from pop_stream.model.errors import DuplicateError, UnavailableError
from pop_stream.model.events.base import DedupeRule, Duplicate
from pop_stream.model.events.scheduling import MAX_QUERIED_AGENDAS
from pop_stream.model.tenancy import display_id
from pop_stream.policy.backlog.duplicates import RETRY_AFTER_S
from pop_stream.policy.ingress.admission import Submission
from pop_stream.ports.queries import QueueQueries

_WITHIN_S: Final = 1.0
"""A scheduler replies in milliseconds; a submission does not wait for a rebalance."""

_log = structlog.get_logger()


class DuplicateFinder:
    """Asks the schedulers which submissions would be duplicates."""

    def __init__(self, queries: QueueQueries) -> None:
        self._queries = queries

    async def find(self, submissions: Sequence[Submission]) -> "KnownDuplicates":
        """What the submissions would be duplicates of; asks nothing if none has a key."""
        by_insight: dict[str, list[DedupeRule]] = {}
        for one in submissions:
            if (rule := refusing_rule(one)) is not None:
                by_insight.setdefault(one.insight_id, []).append(rule)
        queries = [
            self._ask(insight_id, rules[start : start + MAX_QUERIED_AGENDAS])
            for insight_id, rules in by_insight.items()
            for start in range(0, len(rules), MAX_QUERIED_AGENDAS)
        ]
        replies = await asyncio.gather(*queries)
        return KnownDuplicates({one.key: one for reply in replies for one in reply})

    async def _ask(self, insight_id: str, rules: Sequence[DedupeRule]) -> Sequence[Duplicate]:
        try:
            async with asyncio.timeout(_WITHIN_S):
                return (await self._queries.ask(insight_id, dedupe=rules)).duplicates
        except (TimeoutError, UnavailableError) as error:
            _log.warning("duplicates.unavailable", insight_id=insight_id, reason=str(error))
            return ()


class KnownDuplicates:
    """What is there for some keys."""

    def __init__(self, by_key: Mapping[str, Duplicate]) -> None:
        self._by_key = dict(by_key)

    def add(self, submission: Submission) -> None:
        """Another of the same list is let in; those after it may be its duplicates."""
        rule = refusing_rule(submission)
        if rule is not None:
            mine = Duplicate(rule.key, submission.agenda_id, RETRY_AFTER_S)
            self._by_key.setdefault(rule.key, mine)

    def expect_none(self, submission: Submission) -> None:
        """Check that the submission is no duplicate that is refused.

        Raises:
            DuplicateError: If it is.
        """
        rule = refusing_rule(submission)
        known = self._by_key.get(rule.key) if rule is not None else None
        if known is not None and known.agenda_id != submission.agenda_id:
            visible_id = display_id(known.agenda_id, submission.customer_id)
            raise DuplicateError(visible_id, retry_after_s=known.retry_after_s)


def refusing_rule(submission: Submission) -> DedupeRule | None:
    """The rule of a submission whose duplicates are refused; None for any other."""
    dedupe = submission.agenda.dedupe
    if dedupe is None or dedupe.on_duplicate != "refuse":
        return None
    return dedupe_rule(submission.agenda)
