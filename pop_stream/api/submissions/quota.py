"""What each customer may submit here; the rest is answered with 429 and when to come back."""

import time
from collections.abc import Callable, Sequence

from pop_stream.api.submissions.judge import Submission
from pop_stream.core.doors.door import QuotaLedger
from pop_stream.ports.wire import RecordMetadata


class SubmissionQuota:
    """Holds submissions to the quotas of their customers, and to the room of their insights.

    Args:
        ledger: Of this process.
        now_s: Its clock.
    """

    def __init__(
        self, ledger: QuotaLedger, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._quota_ledger = ledger
        self._now_s = now_s

    def admit(self, submission: Submission) -> None:
        """Count one agenda; say what became of it with `note` or `give_up`.

        Raises:
            QuotaError: If it would be one too many of its customer.
            CapacityError: If its insight's scheduler has as much as it may.
        """
        self._quota_ledger.admit(
            submission.customer_id, submission.insight_id, now_s=self._now_s()
        )

    def note(
        self, submissions: Sequence[Submission], offsets: Sequence[RecordMetadata]
    ) -> None:
        """They are written, each at its place."""
        for one, written in zip(submissions, offsets, strict=True):
            self._quota_ledger.record_position(
                one.customer_id, (written.offset, 0), lane=written.partition
            )

    def give_up(self, submissions: Sequence[Submission]) -> None:
        """They are not written, as far as is known."""
        for one in submissions:
            self._quota_ledger.release(one.customer_id)
