"""Where completions of operations from outside are kept, once for each hand-over."""

from typing import Protocol

from pop_stream.model.signal import OperationCompletion


class CompletionStore(Protocol):
    """Completions; every method raises UnavailableError while they are away."""

    async def find(self, agenda_id: str, operation: str) -> OperationCompletion | None:
        """What has been kept last for an operation; None if nothing has."""
        ...

    async def decide(self, completion: OperationCompletion) -> OperationCompletion | None:
        """Keep a completion unless its hand-over has been decided, or a later one has.

        Of several at once, the first counts, whichever process they come to.

        Returns:
            What is kept for the operation then; None if its agenda is there no more.
        """
        ...
