"""What a handler is given: the operation to do, and the way to report on it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

ReportTo = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """An operation to do now.

    Attributes:
        payload: Input with all references replaced. Operations that refer to one and the
            same result share it, so read it, do not change it.
        params: Settings for the handler, as submitted.
        attempt: From 1; above it, an earlier attempt of the agenda failed or went silent.
    """

    name: str
    type: str
    payload: JsonValue
    params: Mapping[str, JsonValue]
    agenda_id: str
    customer_id: str
    insight_id: str
    attempt: int
    report_to: ReportTo = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall(_Call):
    """What an `async def` handler is given."""

    async def report(self, percent: float, message: str = "") -> None:
        """Tell how far the operation is; call it as often as you like, most are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)
        # Lets others run, and a cancellation arrive, in a handler that never waits otherwise.
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOperationCall(_Call):
    """What a plain `def` handler is given; it runs in a thread."""

    def report(self, percent: float, message: str = "") -> None:
        """Tell how far the operation is, from any thread; most reports are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)
