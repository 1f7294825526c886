"""Where an agenda's time goes: its lifecycle's instants, beside those of client and handler."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from pop_stream.cli.bench.figures import percentiles_ms
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaSucceeded,
    LifecycleEvent,
)

NAMES: Final = ("due", "accepted", "emitted", "claimed", "started", "succeeded", "readable")


def name_of(event: LifecycleEvent) -> str | None:
    """The stage that an event ends; None for any other event."""
    match event:
        case AgendaAccepted():
            return "accepted"
        case AgendaEmitted():
            return "emitted"
        case AgendaClaimed():
            return "claimed"
        case AgendaSucceeded():
            return "succeeded"
        case _:
            return None


def stages(instants: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
    """Percentiles of the time between each two stages that follow one another.

    Args:
        instants: In seconds, by stage, of each agenda; those that miss one are left out of
            the spans it bounds.
    """
    return {
        f"{before}_to_{after}": percentiles_ms(
            [one[after] - one[before] for one in instants if before in one and after in one]
        )
        for before, after in pairwise(NAMES)
    }


def on_monotonic(at: datetime, *, ahead: float) -> float:
    """A wall-clock instant on the monotonic clock, given how far the wall clock is ahead."""
    return at.timestamp() - ahead
