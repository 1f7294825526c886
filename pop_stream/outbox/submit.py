"""The service's side: an agenda becomes a row, in the transaction that is open."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal
from uuid import uuid4

from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda

Style = Literal["format", "named", "numeric"]
"""How a driver marks parameters: `%s`, `:name` or `$1`."""

_INTO: Final = "insert into pop_outbox (agenda_id, customer_id, agenda) values"
# Cast twice: a driver that knows how to write JSON would write the text as a JSON string.
_SQL: Final[Mapping[Style, str]] = {
    "format": f"{_INTO} (%s, %s, cast(cast(%s as text) as json))",
    "named": f"{_INTO} (:agenda_id, :customer_id, cast(cast(:agenda as text) as json))",
    "numeric": f"{_INTO} ($1, $2, cast(cast($3 as text) as json))",
}


@dataclass(frozen=True, slots=True)
class Insertion:
    """An INSERT of one agenda, to be executed by any driver.

    Attributes:
        sql: The statement, with marks of the style that was asked for.
        agenda_id: The agenda's, given or made.
        customer_id: Whose share it counts against.
        agenda: As JSON text, with its id.
    """

    sql: str
    agenda_id: str
    customer_id: str
    agenda: str

    @property
    def parameters(self) -> tuple[str, str, str]:
        """In the order of the marks."""
        return self.agenda_id, self.customer_id, self.agenda

    @property
    def named_parameters(self) -> dict[str, str]:
        """By name, for the style `named`."""
        agenda_id, customer_id, agenda = self.parameters
        return {"agenda_id": agenda_id, "customer_id": customer_id, "agenda": agenda}


def insertion(agenda: Agenda | Mapping[str, Any], style: Style = "format") -> Insertion:
    """The INSERT for an agenda, which is given an id if it has none.

    Raises:
        SubmissionError: If it is not sound; it says which fields, and what helps. Whether an
            insight takes it is found out only when it is submitted.
    """
    given = json.loads(encode_agenda(agenda)) if isinstance(agenda, Agenda) else dict(agenda)
    sound = parse_agenda({**given, "id": given.get("id") or uuid4().hex})
    body = encode_agenda(sound).decode()
    return Insertion(_SQL[style], sound.id or "", sound.customer_id, body)


def submit(connection: Any, agenda: Agenda | Mapping[str, Any]) -> str:  # noqa: ANN401
    """Write an agenda into the outbox, in the transaction of the caller; its id.

    Args:
        connection: A connection or cursor of psycopg or psycopg2, a connection of Django
            (`connections["default"]`), a connection or session of SQLAlchemy. For any other,
            execute `insertion`.
        agenda: As it would be submitted.

    Raises:
        SubmissionError: If the agenda is not sound; nothing was written.
        TypeError: If the connection is none of these.
    """
    kind = _library(connection)
    if kind == "sqlalchemy":
        row = insertion(agenda, "named")
        connection.execute(_text(row.sql), row.named_parameters)
        return row.agenda_id
    if kind not in {"psycopg", "psycopg2", "django"}:
        raise TypeError(_unknown(connection, "submit"))
    row = insertion(agenda)
    if hasattr(connection, "execute") and kind != "django":
        connection.execute(row.sql, row.parameters)
    else:
        with connection.cursor() as cursor:
            cursor.execute(row.sql, row.parameters)
    return row.agenda_id


async def asubmit(connection: Any, agenda: Agenda | Mapping[str, Any]) -> str:  # noqa: ANN401
    """Write an agenda into the outbox, as `submit` does, with an asynchronous driver.

    Args:
        connection: A connection of asyncpg, an asynchronous one of psycopg, or an asynchronous
            connection or session of SQLAlchemy.
        agenda: As it would be submitted.

    Raises:
        SubmissionError: If the agenda is not sound; nothing was written.
        TypeError: If the connection is none of these.
    """
    kind = _library(connection)
    if kind == "sqlalchemy":
        row = insertion(agenda, "named")
        await connection.execute(_text(row.sql), row.named_parameters)
    elif kind == "asyncpg":
        row = insertion(agenda, "numeric")
        await connection.execute(row.sql, *row.parameters)
    elif kind == "psycopg":
        row = insertion(agenda)
        await connection.execute(row.sql, row.parameters)
    else:
        raise TypeError(_unknown(connection, "asubmit"))
    return row.agenda_id


def _library(connection: object) -> str:
    """The library of a connection, by the first of its classes that is known."""
    known = {"asyncpg", "django", "psycopg", "psycopg2", "sqlalchemy"}
    names = (one.__module__.partition(".")[0] for one in type(connection).__mro__)
    return next((one for one in names if one in known), "")


def _text(sql: str) -> Any:  # noqa: ANN401  # of a package that need not be there
    return import_module("sqlalchemy").text(sql)


def _unknown(connection: object, function: str) -> str:
    return (
        f"{function} does not know connections of type {type(connection).__module__}."
        f"{type(connection).__qualname__}; execute the statement of `insertion` with it"
    )
