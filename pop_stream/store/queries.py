"""Named queries: what the files of `sql/queries` hold, by name."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pop_stream.resources import folder

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(aggregate: str) -> Mapping[str, str]:
    """The queries of `sql/queries/<aggregate>.sql` by name.

    Raises:
        ValueError: If a name is taken twice or a query does not say what it is for.
    """
    return parse_queries((folder("sql") / "queries" / f"{aggregate}.sql").read_text())


def parse_queries(text: str) -> Mapping[str, str]:
    """Queries by name; each begins with `-- name: ...` and a comment.

    Raises:
        ValueError: If a name is taken twice or a query does not say what it is for.
    """
    _, *parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, query in zip(parts[::2], parts[1::2], strict=True):
        if name in queries:
            msg = f"two queries are called {name!r}"
            raise ValueError(msg)
        if not query.startswith("-- "):
            msg = f"query {name!r} has no comment that says what it is for"
            raise ValueError(msg)
        queries[name] = query.strip()
    return MappingProxyType(queries)
