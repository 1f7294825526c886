"""Commits end with the assignment in which they were begun."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import IllegalGenerationError

from pop_stream.kafka.hardening import internals


def guard_commits(consumer: Any) -> None:  # noqa: ANN401  # Faust's own class too
    """Have a started consumer refuse a commit whose assignment is no longer its own.

    The client repeats a commit that was not answered, and repeats it as the member that it has
    become meanwhile: that would set back offsets of partitions that others have now. And a
    group without members takes any offset from a process that was expelled and has not joined
    again: also one past a record that was just found to be uncommitted. Both are refused here
    with `IllegalGenerationError`, right before each request, so repetitions are refused too.

    Args:
        consumer: Started; one without a group is left as it is.
    """
    if internals.group_of(consumer) is None:
        return
    coordinator = internals.coordinator_of(consumer)
    subscription = internals.subscription_of(consumer)

    def guarded(send: Callable[[Any, Any], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def send_guarded(assignment: Any, offsets: Any) -> None:  # noqa: ANN401
            is_member = (
                coordinator.generation >= 0 or not subscription.partitions_auto_assigned()
            )
            if not assignment.active or not is_member:
                raise IllegalGenerationError
            await send(assignment, offsets)

        return send_guarded

    internals.wrap_send_commit(coordinator, guarded)
