"""The wall clock."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The wall clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...
