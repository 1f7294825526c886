"""The registry of handlers by operation type, and how one is imported by name."""

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that does operations of one type.

    Attributes:
        is_async: Runs in the event loop; otherwise in a thread.
    """

    function: Callable[[Any], Any]
    is_async: bool


class Handlers:
    """Handlers by operation type; independent of any puller, so a module can hold some."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._works: list[Callable[[], Coroutine[Any, Any, object]]] = []

    @property
    def types(self) -> tuple[str, ...]:
        """The operation types that have a handler, sorted."""
        return tuple(sorted(self._by_type))

    def find(self, operation_type: str) -> Handler | None:
        """The handler of an operation type, or None."""
        return self._by_type.get(operation_type)

    def handler(self, operation_type: str) -> Callable[[F], F]:
        """Register the decorated function for an operation type.

        It takes one argument, an `OperationCall`, or a `SyncOperationCall` if it is not
        `async`, and returns what JSON can say: the operation's result.

        Raises:
            ValueError: If the type has a handler already.
            TypeError: If the function is a generator.
        """

        def register(function: F) -> F:
            self._put(operation_type, _handler(function))
            return function

        return register

    def include(self, other: "Handlers") -> None:
        """Take over all handlers of another registry.

        Raises:
            ValueError: If both have a handler for one type.
        """
        for operation_type in other.types:
            if handler := other.find(operation_type):
                self._put(operation_type, handler)
        self._works += other.works
        self.on_stop(other.close)

    def on_stop(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have `closer` awaited each time a puller has stopped; for sessions and pools."""
        self._closers.append(closer)

    def beside(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have `work` run beside the handlers while a puller serves, until it is cancelled.

        The puller ends if it raises, or returns.
        """
        self._works.append(work)

    @property
    def works(self) -> Sequence[Callable[[], Coroutine[Any, Any, object]]]:
        """What was given to `beside`."""
        return tuple(self._works)

    async def close(self) -> None:
        """Await everything that was given to `on_stop`, the latest first."""
        for closer in reversed(self._closers):
            await closer()

    def _put(self, operation_type: str, handler: Handler) -> None:
        taken = self._by_type.get(operation_type)
        if taken is not None and taken.function is not handler.function:
            msg = (
                f"operation type {operation_type!r} has a handler already, "
                f"{_name(taken.function)}; remove one of the two"
            )
            raise ValueError(msg)
        self._by_type[operation_type] = handler


def load_handlers(reference: str) -> Handlers:
    """Import a registry by name; modules of the working directory are found too.

    Args:
        reference: `module:attribute`, such as `media.work:handlers`.

    Raises:
        ValueError: If there is no such module or attribute, or it is no `Handlers`.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        msg = f"handlers = {reference!r}: write module:attribute, such as media.work:handlers"
        raise ValueError(msg)
    found: object = _module(module_name, reference)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            msg = f"handlers = {reference!r}: {module_name} has no attribute {attribute!r}"
            raise ValueError(msg) from None
    if not isinstance(found, Handlers):
        msg = (
            f"handlers = {reference!r}: is a {type(found).__name__}; make it a "
            "pop_stream.puller.Handlers() and register functions with @handlers.handler"
        )
        raise ValueError(msg)  # noqa: TRY004  # one error type for a wrong reference
    return found


def _module(name: str, reference: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        # A console script has its own folder on the path, not the one it is called in.
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        msg = f"handlers = {reference!r}: no module {name!r} is installed or lies in {here}"
        raise ValueError(msg) from None


def _handler(function: Callable[[Any], Any]) -> Handler:
    # An object that can be called is as async as its `__call__`.
    forms = (function, type(function).__call__)
    if any(map(inspect.isgeneratorfunction, forms)) or any(
        map(inspect.isasyncgenfunction, forms)
    ):
        msg = f"{_name(function)} is a generator; a handler returns its one result"
        raise TypeError(msg)
    return Handler(function, is_async=any(map(inspect.iscoroutinefunction, forms)))


def _name(function: Callable[[Any], Any]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
