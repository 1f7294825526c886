"""What each customer may submit here; the rest is answered with 429 and when to come back."""

import time
from collections.abc import Callable, Sequence

from pop_stream.api.submissions.judge import Submission
from pop_stream.core.doors.door import Door
from pop_stream.ports.wire import Written


class Quota:
    """Holds submissions to the quotas of their customers, and to the room of their insights.

    Args:
        door: Of this process.
        now_s: Its clock.
    """

    def __init__(self, door: Door, now_s: Callable[[], float] = time.monotonic) -> None:
        self._door = door
        self._now_s = now_s

    def admit(self, submission: Submission) -> None:
        """Count one agenda; say what became of it with `note` or `give_up`.

        Raises:
            QuotaError: If it would be one too many of its customer.
            FullError: If its insight's scheduler has as much as it may.
        """
        self._door.admit(submission.customer_id, submission.insight_id, now_s=self._now_s())

    def note(self, submissions: Sequence[Submission], places: Sequence[Written]) -> None:
        """They are written, each at its place."""
        for one, place in zip(submissions, places, strict=True):
            self._door.written(one.customer_id, (place.offset, 0), lane=place.partition)

    def give_up(self, submissions: Sequence[Submission]) -> None:
        """They are not written, as far as is known."""
        for one in submissions:
            self._door.given_up(one.customer_id)
