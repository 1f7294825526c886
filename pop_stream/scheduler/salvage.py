"""What can be used of a record that cannot be handled as a whole."""

from collections.abc import Awaitable, Callable
from typing import Final

from pop_stream.core.events import split_record

MAX_SPLIT_FAILURES: Final = 64
"""Of one record: what is left then is not parted any more. Each may cost that the table is read
anew; three culprits among 500 are found with fewer."""


async def split_poison(
    value: bytes | None, handle: Callable[[bytes | None], Awaitable[None]]
) -> list[tuple[bytes | None, Exception]]:
    """Handle a record by parts, in its order; those that cannot be, with why.

    None if it can be handled as a whole now.

    Args:
        value: Of the record.
        handle: Handles a part, or raises and leaves nothing half done.
    """
    found: list[tuple[bytes | None, Exception]] = []
    waiting, failures = [value], 0
    while waiting:
        part = waiting.pop()
        try:
            await handle(part)
        except Exception as error:  # whatever it is, it is told with the part
            failures += 1
            both = split_record(part) if failures <= MAX_SPLIT_FAILURES else None
            if both is None:
                found.append((part, error))
            else:
                waiting += reversed(both)
    return found
