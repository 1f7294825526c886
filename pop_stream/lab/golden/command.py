"""`pop-stream lab golden`: records what one fixed run leaves behind, or compares with it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pop_stream.cli.output import JsonFlag, console, emit


def golden(
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the golden file.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare a run with this golden file.")
    ] = None,
    raw: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep all that was read, as it was.")
    ] = None,
    from_raw: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run nothing, take what was kept.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run one fixed piece of work on the whole system and compare all that it leaves behind.

    Starts everything on this machine, submits, commands, pulls and reports over HTTP and Kafka,
    and reads every record of every topic, all final summaries and the tables. Give `--record`
    or `--compare`. Exits with 1 if a run differs from the golden file.
    """
    from pop_stream.lab.golden.normal_form import differences, names, normalised, written
    from pop_stream.lab.golden.run import run
    from pop_stream.operations.errors import UsageError

    if (record is None) == (compare is None):
        msg = "give one of --record and --compare"
        raise UsageError(msg)
    seen = run(names()) if from_raw is None else json.loads(from_raw.read_text())
    if raw is not None:
        raw.write_text(json.dumps(seen, indent=1))
    found = normalised(seen)
    if record is not None:
        record.write_text(written(found))
    lines = [] if compare is None else differences(json.loads(compare.read_text()), found)
    out = console(as_json=as_json)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"{sum(map(len, found.values()))} things found, {len(lines)} differences")
    if as_json:
        emit({"found": sum(map(len, found.values())), "differences": len(lines)})
    raise typer.Exit(1 if lines else 0)
