"""Settings from the environment of a command, and their way to the processes it starts."""

import json
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from pop_stream.operations.errors import UsageError
from pop_stream.settings import Settings


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of this process; `overrides` win over its environment.

    Raises:
        UsageError: With the variables' names and what is wrong with each.
    """
    try:
        return Settings(**(overrides or {}))  # type: ignore[arg-type]  # checked right here
    except ValidationError as error:
        raise UsageError("\n".join(_validation_errors(error))) from None


def load_console_settings() -> Settings:
    """The settings of a process that someone watches: its logs are text unless set to JSON."""
    settings = load_settings()
    is_set = "log_format" in settings.model_fields_set
    return settings if is_set else settings.model_copy(update={"log_format": "console"})


def environment_variables(overrides: Mapping[str, object]) -> dict[str, str]:
    """The same overrides as environment variables, for a process to be started."""
    return {
        f"POP_{name.upper()}": json.dumps(value) if isinstance(value, tuple) else str(value)
        for name, value in overrides.items()
    }


def _validation_errors(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False, include_input=False):
        name = "__".join(str(part) for part in fault["loc"])
        yield f"POP_{name.upper()}: {fault['msg']}"
