"""Whether an attempt is over, as far as the summary of its agenda tells."""

from typing import NamedTuple

from pop_stream.core.errors import LeaseLostError
from pop_stream.core.events import EmittedAgenda
from pop_stream.core.lifecycle.lifecycle import OUTCOMES, State


class AttemptStatus(NamedTuple):
    """The newest attempt that the summary of an agenda knows, and the agenda's state."""

    attempt: int
    state: State


def lost(agenda_id: str, attempt: int, standing: AttemptStatus) -> LeaseLostError | None:
    """Why an attempt is over; None if the summary knows of no end of it.

    A refusal is of a submission, and never ends an attempt: what was refused may have been
    submitted anew under its id, and be handed out before the summary tells so.
    """
    if standing.attempt > attempt:
        reason = f"attempt {standing.attempt} follows it"
        return LeaseLostError(agenda_id, attempt, "followed", reason)
    is_over = standing.state in OUTCOMES or standing.state is State.RETRYING
    if standing.attempt == attempt and is_over:
        return ended(agenda_id, attempt, standing.state)
    return None


def ended_in_earlier_attempt(emitted: EmittedAgenda, standing: AttemptStatus) -> bool:
    """Whether the agenda had ended in an earlier attempt of the same run.

    Its end was told in the moment in which the scheduler took that attempt for lost. The
    summary never comes to the attempts after it.
    """
    in_this_run = 0 < emitted.run_from <= standing.attempt < emitted.attempt
    return in_this_run and standing.state in OUTCOMES


def ended(agenda_id: str, attempt: int, state: State) -> LeaseLostError:
    """What a worker is told at an attempt that has ended, or of an agenda that has."""
    is_retrying = state is State.RETRYING
    reason = "it has failed" if is_retrying else f"the agenda has ended, {state.value}"
    return LeaseLostError(agenda_id, attempt, "ended", reason, state=state.value)
