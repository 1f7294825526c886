"""Which operations of an agenda may start: those whose dependencies ended well. May grow."""

from collections import deque
from collections.abc import Iterable

from pop_stream.core.agendas.agenda import Operation, dependencies


class Dag:
    """Ready operations in the order in which they became so.

    Every dependency must be known once the operation is added, or come in the same call;
    without cycles, which validation has proved.
    """

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._operations: dict[str, Operation] = {}
        self._waits: dict[str, int] = {}
        self._dependents: dict[str, list[str]] = {}
        self._done: set[str] = set()
        self.ready: deque[Operation] = deque()
        self.add(operations)

    def add(self, operations: Iterable[Operation]) -> None:
        """Take in more operations; those that wait for nothing are ready at once."""
        for operation in operations:
            self._operations[operation.name] = operation
            waits = dependencies(operation) - self._done
            self._waits[operation.name] = len(waits)
            for name in waits:
                self._dependents.setdefault(name, []).append(operation.name)
            if not waits:
                self.ready.append(operation)

    def done(self, name: str) -> None:
        """An operation ended well: those that waited for nothing else are ready."""
        self._done.add(name)
        for dependent in self._dependents.pop(name, ()):
            self._waits[dependent] -= 1
            if not self._waits[dependent]:
                self.ready.append(self._operations[dependent])

    def skip(self, known: Iterable[str]) -> None:
        """Count operations as done that need not run; only those that are ready by then."""
        names = set(known)
        waiting: list[Operation] = []
        while self.ready:
            operation = self.ready.popleft()
            if operation.name in names:
                self.done(operation.name)
            else:
                waiting.append(operation)
        self.ready.extend(waiting)
