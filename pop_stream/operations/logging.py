"""The one place where logging is configured: structlog and the standard library, alike."""

import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO, cast

import structlog

from pop_stream.operations.environment import load_console_settings
from pop_stream.settings import Settings


class _LossyStream(io.TextIOBase):
    """A stream that drops what it cannot write, as on a full disk, without an error."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class _PrivateFile(io.TextIOBase):
    """A file that is opened, for its owner alone, when there is something to write.

    What is written before the folder above its own exists is lost: whoever owns that folder
    makes it, and chooses who may look into it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def write(self, text: str) -> int:
        if self._file is None and self._path.parent.parent.is_dir():
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "a", buffering=1)
        if self._file is not None:
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


_REPEAT_INTERVAL_S: Final = 60.0
_KEY_LENGTH: Final = 160
_MAX_KEYS: Final = 1_000


def configure(
    settings: Settings, *, muted: Sequence[str] = (), file: TextIO | None = None
) -> None:
    """Send all logs to standard error, as lines of JSON or for a person; call once.

    Args:
        settings: Level and format.
        muted: Loggers of libraries that have nothing to say.
        file: Where they go instead.
    """
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    stamp: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render = _renderers(settings)
    output = cast("TextIO", _LossyStream(file or sys.stderr))
    structlog.configure(
        processors=[*stamp, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*stamp, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    # Libraries tell of every connection and rebalance at `info`; ours say what matters of it.
    libraries = level if settings.log_level == "debug" else max(level, logging.WARNING)
    logging.basicConfig(handlers=[handler], level=libraries, force=True)
    if settings.log_level != "debug":
        handler.addFilter(_RepeatFilter())
    for name in muted:
        logging.getLogger(name).setLevel(logging.CRITICAL)


_CLIENTS: Final = ("aiokafka", "confluent_kafka", "opentelemetry")


class _RepeatFilter(logging.Filter):
    """Passes a library's message once a minute, and as a warning where it retries.

    A client tells of every attempt to reach a broker that is away, several a second, of each;
    an exporter of spans of every batch that a collector does not take.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called for every record of a library; see the class."""
        what = f"{record.name} {record.getMessage()[:_KEY_LENGTH]}"
        if record.created - self._last_logged.get(what, 0.0) < _REPEAT_INTERVAL_S:
            return False
        if len(self._last_logged) >= _MAX_KEYS:
            self._last_logged.clear()
        self._last_logged[what] = record.created
        if record.levelno == logging.ERROR and record.name.startswith(_CLIENTS):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


def configure_console_logging() -> Settings:
    """The same for a command that someone watches: text, unless POP_LOG_FORMAT is set.

    Returns:
        The settings of this process.
    """
    settings = load_console_settings()
    # What aiokafka tries again it logs as errors, which would only alarm; the rest it raises.
    configure(settings, muted=("aiokafka",))
    return settings


def configure_file_logging(path: Path) -> Settings:
    """For a command that tells a person how it goes: what else there is to log is in a file.

    Args:
        path: Of the file, in a folder of its own that is made with it; appended to.

    Returns:
        The settings of this process.
    """
    settings = load_console_settings()
    file = cast("TextIO", _PrivateFile(path))
    configure(settings, muted=("aiokafka",), file=file)
    return settings


def _renderers(settings: Settings) -> list[Any]:
    if settings.log_format == "console":
        plain = structlog.dev.plain_traceback  # rich's would show local variables
        colors = sys.stderr.isatty()
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    # Without the values of local variables: among them are keys, tokens and payloads.
    trace = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    exceptions = structlog.processors.ExceptionRenderer(trace)
    return [exceptions, structlog.processors.JSONRenderer()]
