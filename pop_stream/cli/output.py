"""What commands write: text for a person, or one JSON object as the last line."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.table import Table

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line.")
]


def console(*, as_json: bool = False) -> Console:
    """Where text for a person goes: standard output, unless JSON has that to itself."""
    return Console(stderr=as_json, highlight=False)


def emit(value: Mapping[str, Any] | msgspec.Struct) -> None:
    """Print one line of JSON on standard output."""
    if isinstance(value, msgspec.Struct):
        value = json.loads(msgspec.json.encode(value))
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))


def table(columns: Sequence[str], rows: Sequence[Sequence[RenderableType]]) -> Table:
    """A plain table; columns whose heading starts with `#` hold numbers, which never wrap."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        if column.startswith("#"):
            shown.add_column(column.removeprefix("#"), justify="right", no_wrap=True)
        else:
            shown.add_column(column)
    for row in rows:
        shown.add_row(*row)
    return shown
