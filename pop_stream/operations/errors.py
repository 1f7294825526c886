"""What a command may fail with, and the line that says so."""

import os

from pop_stream.model.errors import PopStreamError


class CommandError(PopStreamError):
    """A command failed; the text is all that its user sees."""

    code = "command"


class UsageError(CommandError):
    """The command was called wrongly, or its environment has a wrong value."""

    code = "usage"


def message(error: BaseException) -> str:
    """What to say of an error; of a group, its first member's.

    Our own errors speak for themselves and may take several lines; others are named and
    brought on one line.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__module__.startswith("pop_stream.") and str(error):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def wants_traces() -> bool:
    """Whether the operator asked for stack traces, with POP_LOG_LEVEL=debug."""
    return os.environ.get("POP_LOG_LEVEL", "").lower() == "debug"
