"""`pop-stream bench compare`: two results side by side."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag

_MIN_WIDTH: Final = 110


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Output of a benchmark's --json.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also single runs and conditions that are the same.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the figures of two results side by side, and how often B is A."""
    from pop_stream.cli.output import console, emit, table

    left, right = read_result(first), read_result(second)
    rows = compared(left, right, everything=everything)
    shown = console(as_json=as_json)
    shown.width = max(shown.width, _MIN_WIDTH)  # names are not to be cut
    cells = [
        (name, _said(a), _said(b), "" if ratio is None else f"{ratio:.3g}")
        for name, (a, b, ratio) in rows.items()
    ]
    shown.print(table(("", f"#{first.name}", f"#{second.name}", "#B / A"), cells))
    if as_json:
        emit({name: {"a": a, "b": b, "ratio": ratio} for name, (a, b, ratio) in rows.items()})


def read_result(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file's last line.

    Raises:
        UsageError: If there is none.
    """
    from pop_stream.operations.errors import UsageError

    try:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
        found: object = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError) as error:
        msg = f"{path}: {error}; give a file made by `pop-stream bench … --json > {path.name}`"
        raise UsageError(msg) from None
    if not isinstance(found, dict):
        msg = f"{path}: its last line is no JSON object; make it with a benchmark's --json"
        raise UsageError(msg)
    return found


def compared(
    left: Mapping[str, Any], right: Mapping[str, Any], *, everything: bool = False
) -> Mapping[str, tuple[Any, Any, float | None]]:
    """Both values and their ratio, by dotted name, in the first's order.

    Args:
        left: A result.
        right: Another, of the same or of another benchmark.
        everything: Lists too, and conditions that do not differ.
    """
    a, b = dict(_flat(left)), dict(_flat(right))
    return {
        name: (a.get(name), b.get(name), _ratio(a.get(name), b.get(name)))
        for name in {**a, **b}
        if everything or not _is_detail(name, a.get(name), b.get(name))
    }


def _flat(value: object, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _flat(one, f"{name}[{number}]")
    else:
        yield name, value


def _is_detail(name: str, a: object, b: object) -> bool:
    is_same_condition = name.startswith("conditions.") and a == b
    return "[" in name or is_same_condition


def _ratio(a: object, b: object) -> float | None:
    for one in (a, b):
        if isinstance(one, bool) or not isinstance(one, int | float):
            return None
    assert isinstance(a, int | float)  # noqa: S101  # for the type checker: seen above
    assert isinstance(b, int | float)  # noqa: S101
    return b / a if a else None


def _said(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004
    return f"{value:,}" if isinstance(value, int) else str(value)
