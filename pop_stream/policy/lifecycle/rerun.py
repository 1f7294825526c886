"""What may be wanted of an agenda in which state, and how one that has ended runs again."""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Raw
from msgspec.structs import replace

from pop_stream.model.agenda import Agenda, Operation, dependencies, routed_agenda
from pop_stream.model.appended_operations import all_operations
from pop_stream.model.errors import Issue, StateError, SubmissionError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import Action, AgendaRestarted
from pop_stream.policy.lifecycle.states import BEFORE_EMISSION, OUTCOMES, State
from pop_stream.policy.lifecycle.summary import Summary, appended_name

RerunScope = Literal["all", "failed"]

_OPEN: Final = BEFORE_EMISSION | {State.EMITTED, State.RUNNING, State.RETRYING}

_EFFECTIVE_IN: Final[Mapping[Action, frozenset[State]]] = MappingProxyType(
    {
        "cancel": _OPEN,
        "hold": frozenset({State.READY, State.WAITING, State.RETRYING}),
        "release": frozenset({State.HELD}),
        "reprioritise": BEFORE_EMISSION | {State.RETRYING},
    }
)

_ALREADY_DONE_IN: Final[Mapping[Action, frozenset[State]]] = MappingProxyType(
    {
        "cancel": frozenset({State.CANCELLED}),
        "hold": frozenset({State.HELD}),
        "release": BEFORE_EMISSION | {State.EMITTED, State.RUNNING, State.RETRYING},
        "reprioritise": frozenset(),
    }
)


def undoes_command(action: Action) -> bool:
    """Whether it undoes another command, which may be on its way though nothing shows yet.

    The scheduler must get it even where it seems to be so already, or the other one,
    which was wanted before it, would have the last word.
    """
    return action in {"hold", "release"}


def has_effect(action: Action, summary: Summary) -> bool:
    """Whether the command changes anything; False if the agenda is already as it wants.

    Raises:
        StateError: If the agenda's state forbids it.
    """
    if summary.state in _EFFECTIVE_IN[action]:
        return action != "cancel" or summary.stopping is None
    if summary.state in _ALREADY_DONE_IN[action]:
        return False
    wanted = ", ".join(sorted(state.value for state in _EFFECTIVE_IN[action]))
    raise StateError(summary.agenda_id, summary.state.value, action, wanted)


def must_reach_scheduler(action: Action, summary: Summary) -> bool:
    """Whether the scheduler must get the command, alone or as one of many.

    Raises:
        StateError: If the agenda's state forbids it.
    """
    return has_effect(action, summary) or undoes_command(action)


def restart_event(  # noqa: PLR0913  # each is a choice of whoever wants it
    summary: Summary,
    agenda: Agenda,
    *,
    again: RerunScope | Collection[str],
    hold: bool,
    by: str,
    reason: str,
    now: datetime,
) -> AgendaRestarted:
    """The event that runs an agenda again, as the attempt after its last one.

    Args:
        summary: Of the agenda, which has ended, with its operations.
        agenda: As it was accepted.
        again: All operations, without those that were appended; those that did not succeed,
            from where they were; or those named and all that follows from them, see `reset`.
        hold: Whether it is to wait until it is released: a reset without running.
        by: Who wants it.
        reason: In that one's words.
        now: The present instant. A deadline that has passed is dropped.

    Raises:
        StateError: If the agenda has not ended.
        SubmissionError: If an operation is named that the agenda does not have.
    """
    if summary.state not in OUTCOMES:
        wanted = ", ".join(sorted(state.value for state in OUTCOMES))
        raise StateError(summary.agenda_id, summary.state.value, "rerun", wanted)
    attempt = summary.attempt + 1
    deadline = agenda.expires_at
    first = routed_agenda(agenda, summary.body, agenda_id=summary.agenda_id, accepted_at=now)
    routed = replace(
        first,
        attempt=attempt,
        priority=summary.priority,
        not_before=None,
        expires_at=deadline if deadline is not None and deadline > now else None,
        held=hold,
        series=None,
    )
    return AgendaRestarted(
        agenda_id=summary.agenda_id,
        at=now,
        insight_id=summary.insight_id,
        attempt=attempt,
        routed=Raw(encode(routed)),
        reset=reset(all_operations(agenda.operations, summary.appended), summary, again),
        by=by,
        reason=reason,
    )


def reset(
    operations: Collection[Operation], summary: Summary, again: RerunScope | Collection[str]
) -> Literal["all"] | tuple[str, ...]:
    """Names of the operations that begin anew, in the agenda's order.

    They are those chosen, all that depend on one of them, and all that one of them appended, by
    however many steps. Without any, the attempt goes on where the one before it ended.

    Args:
        operations: All that the agenda has.
        summary: Says who appended what.
        again: As in `restart_event`.

    Raises:
        SubmissionError: If an operation is named that the agenda does not have.
    """
    if again == "all" or again == "failed":  # noqa: PLR1714  # a set would not narrow the type
        return "all" if again == "all" else ()
    anew = _with_followers(_known(again, operations), operations, summary.appended)
    names = tuple(one.name for one in operations if one.name in anew)
    return "all" if len(names) == len(operations) else names


def _known(names: Collection[str], operations: Collection[Operation]) -> set[str]:
    known = {one.name for one in operations}
    if unknown := sorted(set(names) - known):
        shown = ", ".join(sorted(known)[:8])
        message = f"no operation of this agenda; name some of: {shown}"
        raise SubmissionError([Issue("operations", unknown[0], message)])
    return set(names)


def _with_followers(
    chosen: set[str],
    operations: Collection[Operation],
    appended: Collection[AppendedOperation],
) -> set[str]:
    followers: dict[str, list[str]] = {}
    for one in operations:
        for name in dependencies(one):
            followers.setdefault(name, []).append(one.name)
    for new in appended:
        followers.setdefault(new.by, []).append(appended_name(new))
    reached, ahead = set(chosen), [*chosen]
    while ahead:
        for name in followers.get(ahead.pop(), ()):
            if name not in reached:
                reached.add(name)
                ahead.append(name)
    return reached
