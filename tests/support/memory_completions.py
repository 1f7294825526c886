"""Completions in memory; the contract suite holds them to their port."""

from pop_stream.model.signal import OperationCompletion


class MemoryCompletions:
    """The port; of every agenda, as if all were known, but those in `removed`."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], OperationCompletion] = {}
        self.removed: set[str] = set()

    async def find(self, agenda_id: str, operation: str) -> OperationCompletion | None:
        return self.kept.get((agenda_id, operation))

    async def decide(self, completion: OperationCompletion) -> OperationCompletion | None:
        key = completion.agenda_id, completion.operation
        if completion.agenda_id in self.removed:
            return None
        known = self.kept.get(key)
        if known is None or (
            known.token != completion.token and known.attempt <= completion.attempt
        ):
            self.kept[key] = completion
        return self.kept[key]
