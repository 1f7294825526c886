"""How a filter of agendas becomes statements whose cost has a bound, whatever there is.

Every list is in order of acceptance. A filter is answered from the index of its most selective
field, the *anchor*, each of whose values is a list in that order; without one, from the list of
all. What no index answers is checked agenda by agenda. A page does so for a *window* only: the
next `WINDOW_AGENDAS` of the list. If the window ends before the page is full, the page is short
and the next one goes on where the window ended. Counts end likewise, and say so.

Statements are put together from the constants of this file; all that a caller says is a value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter

WINDOW_AGENDAS: Final = 10_000
"""Agendas of a list that one page is chosen from, where no index answers the whole filter."""

WINDOW_PAYLOADS: Final = 2_000
"""The same where payloads are looked into, which costs more."""

_LEAST_OF_A_VALUE: Final = 50
"""Of them for each value of the anchor, if it has many."""

_ACCEPTED: Final = "coalesce(accepted_at, '-infinity')"

_NOTABLE: Final = frozenset(
    {
        State.WAITING,
        State.HELD,
        State.RETRYING,
        State.FAILED,
        State.CANCELLED,
        State.EXPIRED,
        State.REFUSED,
    }
)
"""States with an index, as the schema has them in `notable_state`."""

_ANCHORS: Final[Mapping[str, str]] = {
    "ids": "agenda_id",
    "external_ids": "external_id",
    "correlation_ids": "correlation_id",
    "link_ids": "link_id",
    "template_ids": "template_id",
    "states": "notable_state",
    "customer_ids": "customer_id",
    "insight_ids": "insight_id",
}
"""Columns that lead an index, by field of a filter; the most selective come first."""

_TESTS: Final[Mapping[str, str]] = {
    "ids": "agenda_id = any({}::text[])",
    "customer_ids": "customer_id = any({}::text[])",
    "insight_ids": "insight_id = any({}::text[])",
    "link_ids": "link_id = any({}::text[])",
    "template_ids": "template_id = any({}::text[])",
    "titles": "title = any({}::text[])",
    "external_ids": "external_id = any({}::text[])",
    "correlation_ids": "correlation_id = any({}::text[])",
    "states": "state = any({}::text[])",
    "priorities": "priority = any({}::integer[])",
    "attempts": "attempt = any({}::integer[])",
    "puller_ids": "puller_id = any({}::text[])",
    "waiting_for": "waiting_for = any({}::text[])",
    "stopping": "stopping = any({}::text[])",
    "payload": "payload_has(body, {}::text[], {}::text[])",
    "emitted_from": "emitted_at >= {}::timestamptz",
    "emitted_before": "emitted_at < {}::timestamptz",
    "started_from": "started_at >= {}::timestamptz",
    "started_before": "started_at < {}::timestamptz",
    "ended_from": "ended_at >= {}::timestamptz",
    "ended_before": "ended_at < {}::timestamptz",
}

_BOUNDS: Final[Mapping[str, str]] = {
    "accepted_from": f"{_ACCEPTED} >= {{}}::timestamptz",
    "accepted_before": f"{_ACCEPTED} < {{}}::timestamptz",
}
"""Tests that the order of every list answers."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query with its values, by position."""

    query: str
    values: Sequence[object]


class AgendaSearch:
    """The statements for one filter.

    Args:
        queries: The named statements `listed`, `counted` and `window_end`.
        wanted: The filter.
        newest_first: The direction of the list.
        is_windowed: Whether only a window of the list is looked at; else all of it.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        wanted: AgendaFilter,
        *,
        newest_first: bool = True,
        is_windowed: bool = False,
    ) -> None:
        self._queries = queries
        self._wanted = wanted
        self._direction = "desc" if newest_first else "asc"
        self._anchor = _anchor(wanted)
        tested = [one for one in _TESTS if one != self._anchor and _values(wanted, one)]
        self.has_window = is_windowed and bool(tested) and self._anchor != "ids"
        self._tested = tested

    @property
    def is_one_list(self) -> bool:
        """Whether all that fits stands in one list, so that a page may stop once it is full."""
        return self._anchor is None or len(_values(self._wanted, self._anchor)) == 1

    def page(
        self,
        columns: str,
        limit: int,
        after: AgendaCursor | None,
        until: AgendaCursor | None = None,
    ) -> Statement:
        """The agendas that fit, behind a position and up to another; of the window, if any."""
        return self._select("listed", columns, limit, after, until)

    def count(self, limit: int) -> Statement:
        """How many fit, from the list's beginning; `limit` if there are as many."""
        return self._select("counted", "", limit, None)

    def window_end(self, after: AgendaCursor | None) -> Statement:
        """Where the window behind a position ends; no row if it reaches the end of the list."""
        values: list[object] = []
        size = self._window_size
        source = self._source(values, "accepted_at, agenda_id", after, size, skipped=size - 1)
        query = self._queries["window_end"].format(source=source, direction=self._direction)
        return Statement(query, values)

    def _select(
        self,
        name: str,
        columns: str,
        limit: int,
        after: AgendaCursor | None,
        until: AgendaCursor | None = None,
    ) -> Statement:
        values: list[object] = []
        inner = self._window_size if self.has_window else limit
        source = self._source(values, "*", after, inner)
        tests = self._tests(values) if self.has_window else []
        if until is not None:
            tests.append(_behind(values, until, "<=" if self._direction == "asc" else ">="))
        query = self._queries[name].format(
            columns=columns,
            source=source,
            filter=" and ".join(tests) or "true",
            direction=self._direction,
            limit=limit,
        )
        return Statement(query, values)

    @property
    def _window_size(self) -> int:
        whole = WINDOW_PAYLOADS if self._wanted.payload else WINDOW_AGENDAS
        if self._anchor is None:
            return whole
        number = len(_values(self._wanted, self._anchor))
        return max(_LEAST_OF_A_VALUE, whole // number)

    def _source(
        self,
        values: list[object],
        columns: str,
        after: AgendaCursor | None,
        limit: int,
        *,
        skipped: int = 0,
    ) -> str:
        """The lists of the anchor's values, each cut off; tested in it unless in a window."""
        tests = [] if self.has_window else self._tests(values)
        tests += self._bounds(values, after)
        rest = (
            f"order by {_ACCEPTED} {self._direction}, agenda_id {self._direction} "
            f"offset {skipped} limit {limit - skipped}"
        )
        if self._anchor is None:
            return _list(columns, tests, rest)
        column, wanted = _ANCHORS[self._anchor], _values(self._wanted, self._anchor)
        if len(wanted) == 1:
            tests.insert(0, f"{column} = {_added(values, wanted[0])}::text")
            return _list(columns, tests, rest)
        tests.insert(0, f"{column} = anchor.value")
        each = _list(columns, tests, rest)
        anchor = f"unnest({_added(values, wanted)}::text[]) as anchor (value)"
        return f"(select one_list.* from {anchor} cross join lateral {each} as one_list)"  # noqa: S608  # see above

    def _tests(self, values: list[object]) -> list[str]:
        plain = [
            _TESTS[one].format(_added(values, _value(self._wanted, one)))
            for one in self._tested
            if one != "payload"
        ]
        # Last: what they cost is spent on what fits otherwise.
        return plain + [
            _TESTS["payload"].format(_added(values, [*one.path]), _added(values, [*one.values]))
            for one in self._wanted.payload
        ]

    def _bounds(self, values: list[object], after: AgendaCursor | None) -> list[str]:
        bounds = [
            test.format(_added(values, at))
            for name, test in _BOUNDS.items()
            if (at := getattr(self._wanted, name)) is not None
        ]
        if after is not None:
            bounds.append(_behind(values, after, ">" if self._direction == "asc" else "<"))
        return bounds


def _behind(values: list[object], position: AgendaCursor, sign: str) -> str:
    at = _added(values, position.accepted_at)
    agenda_id = _added(values, position.agenda_id)
    return (
        f"({_ACCEPTED}, agenda_id) {sign} "
        f"(coalesce({at}::timestamptz, '-infinity'), {agenda_id}::text)"
    )


def _anchor(wanted: AgendaFilter) -> str | None:
    for name in _ANCHORS:
        values = _values(wanted, name)
        if values and (name != "states" or _NOTABLE.issuperset(wanted.states)):
            return name
    return None


def _values(wanted: AgendaFilter, name: str) -> Sequence[object]:
    """What a field wants, each once; nothing if it is not set."""
    value = _value(wanted, name)
    return [value] if isinstance(value, datetime) else value or ()


def _value(wanted: AgendaFilter, name: str) -> list[object] | datetime | None:
    value = getattr(wanted, name)
    if value is None or isinstance(value, datetime):
        return value
    return list(dict.fromkeys(getattr(one, "value", one) for one in value))


def _added(values: list[object], value: object) -> str:
    values.append(value)
    return f"${len(values)}"


def _list(columns: str, tests: Sequence[str], rest: str) -> str:
    where = " and ".join(tests) or "true"
    return f"(select {columns} from agendas where {where} {rest})"  # noqa: S608  # see above
