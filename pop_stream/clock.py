"""The only reader of the wall clock."""

from datetime import UTC, datetime


class WallClock:
    """The machine's clock, as aware UTC instants."""

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)  # noqa: TID251  # this is the one place that may
