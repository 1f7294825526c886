"""The names of things: ids as types of their own, and what an id may look like."""

from typing import Final, NewType

AgendaId = NewType("AgendaId", str)
CustomerId = NewType("CustomerId", str)
InsightId = NewType("InsightId", str)
LinkId = NewType("LinkId", str)
OperationName = NewType("OperationName", str)
PullerId = NewType("PullerId", str)

ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:~-]*$"
"""Safe in a URL path, a Kafka key and a log line without quoting."""

ID_LENGTH: Final = 128
"""Longest agenda, customer or link id, in characters."""

_NAMED: Final = rf"[A-Za-z0-9][A-Za-z0-9._:~-]{{0,{ID_LENGTH - 1}}}"

OWN_ID_PATTERN: Final = rf"^{_NAMED}(@{_NAMED})?$"
"""Of agendas and templates: with the customer after the @ if it chose the id itself."""

OWN_ID_LENGTH: Final = 2 * ID_LENGTH + 1
"""Longest id of an agenda or a template, its customer included."""

HTTP_PULLER: Final = "(http)"
"""Who claims for workers that pull over HTTP, until the worker's own name comes with its first
sign of life. It sorts before all names of workers, and the last in order is the one shown."""

TOPIC_SAFE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""An insight id is part of a topic name, so it is narrower than `ID_PATTERN`."""

INSIGHT_ID_LENGTH: Final = 200
"""A topic name holds 249 characters, and a prefix must fit before the id."""
