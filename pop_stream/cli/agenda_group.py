"""`pop-stream agenda …`: list agendas, and say what is to become of them."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pop_stream.cli.errors import UsageError
from pop_stream.cli.output import JsonFlag, console, emit

if TYPE_CHECKING:
    from pop_stream.cli.client import ApiClient

app = typer.Typer(
    help="List agendas; cancel, hold, release, reprioritise, rerun and delete them.",
    no_args_is_help=True,
)

FIELDS: Final = ("customer", "insight", "link", "state")
"""What agendas may be chosen by; each may be told several times, and any value fits."""

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Agendas by id.")]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help=f"Those that fit; {', '.join(FIELDS)}."),
]
Reason = Annotated[str, typer.Option(help="Shown with the agenda and in its events.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]

_Filter = dict[str, list[str]]

_COLUMNS: Final = ("id", "state", "customer_id", "insight_id", "attempt", "accepted_at")


@app.command("list")
def list_agendas(
    ids: Ids = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(min=1, help="Most to show.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """Show agendas that fit, newest first."""
    chosen = _filter(ids, where)
    asyncio.run(_list(chosen, limit, as_json=as_json))


@app.command()
def show(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
) -> None:
    """Print all that is known of an agenda, as JSON."""

    async def read() -> None:
        async with _client() as client:
            emit(await client.get("agendas", agenda_id))

    asyncio.run(read())


@app.command()
def why(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Say why an agenda is where it is, and about how long it will wait."""

    async def ask() -> None:
        async with _client() as client:
            told = await client.get("agendas", agenda_id, "why")
        if as_json:
            emit(told)
        else:
            typer.echo(told["why"])

    asyncio.run(ask())


@app.command()
def cancel(
    ids: Ids = None,
    where: Where = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """End agendas: at once while they wait; while they run, their pullers are told."""
    chosen = _filter(ids, where)
    _command("cancel", chosen, {"reason": reason}, dry_run=dry_run, as_json=as_json)


@app.command()
def hold(
    ids: Ids = None,
    where: Where = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Let agendas that wait wait until they are released."""
    chosen = _filter(ids, where)
    _command("hold", chosen, {"reason": reason}, dry_run=dry_run, as_json=as_json)


@app.command()
def release(
    ids: Ids = None,
    where: Where = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Let agendas that are held take their turn."""
    chosen = _filter(ids, where)
    _command("release", chosen, {"reason": reason}, dry_run=dry_run, as_json=as_json)


@app.command()
def reprioritise(  # noqa: PLR0913, PLR0917  # one for each option
    ids: Ids = None,
    where: Where = None,
    priority: Annotated[
        int | None, typer.Option(min=1, max=9, help="1 is most urgent.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Among equal priorities, least first.")
    ] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Change where waiting agendas stand among their customer's own."""
    moves = {"priority": priority, "rank": rank}
    wish: dict[str, Any] = {key: value for key, value in moves.items() if value is not None}
    wish["reason"] = reason
    _command("reprioritise", _filter(ids, where), wish, dry_run=dry_run, as_json=as_json)


@app.command()
def rerun(  # noqa: PLR0913, PLR0917  # one for each option
    ids: Ids = None,
    where: Where = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All operations, not only those that failed.")
    ] = False,
    held: Annotated[
        bool, typer.Option("--hold", help="Reset, and run once they are released.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Run agendas that have ended again, as a new attempt."""
    wish = {"reason": reason, "operations": "all" if everything else "failed", "hold": held}
    chosen = _filter(ids, where)
    _command("rerun", chosen, wish, dry_run=dry_run, as_json=as_json)


@app.command()
def delete(
    ids: Ids = None,
    where: Where = None,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove agendas that have ended, with all that is known of them."""
    chosen = _filter(ids, where)
    _command("delete", chosen, {}, dry_run=dry_run, as_json=as_json)


@app.command()
def resubmit(
    ids: Ids = None, where: Where = None, dry_run: DryRun = False, as_json: JsonFlag = False
) -> None:
    """Submit refused agendas again, those that pass by the definitions in force now."""

    async def send() -> None:
        async with _client() as client:
            body = {"filter": _filter(ids, where), "dry_run": dry_run}
            told = await client.post("resubmissions", body=body)
        if as_json:
            emit(told)
            return
        verb = "would be submitted" if dry_run else "submitted"
        typer.echo(f"{verb} {told['resubmitted']}, still refused {told['still_refused']}")
        for one in told["reasons"]:
            typer.echo(f"  {one['id']}: {one['reason']}")

    asyncio.run(send())


def _filter(ids: Sequence[str] | None, where: Sequence[str] | None) -> _Filter:
    chosen: _Filter = {"ids": [*ids]} if ids else {}
    for condition in where or ():
        name, is_told, value = condition.partition("=")
        if name not in FIELDS or not is_told:
            msg = f"--where {condition}: write FIELD=VALUE, with one of {', '.join(FIELDS)}"
            raise UsageError(msg)
        key = name if name == "state" else f"{name}_id"
        chosen.setdefault(key, []).append(value)
    return chosen


def _command(
    action: str, chosen: _Filter, wish: dict[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    if not chosen:
        msg = f"name the agendas to {action} by id, or choose them with --where"
        raise UsageError(msg)
    asyncio.run(
        _send({"action": action, "filter": chosen, "dry_run": dry_run} | wish, as_json=as_json)
    )


async def _send(command: dict[str, Any], *, as_json: bool) -> None:
    async with _client() as client:
        result = await client.post("commands", body=command)
    if as_json:
        emit(result)
    else:
        _show(result)
    if not result["matched"]:
        msg = "no agenda fits; what was accepted just now may take a moment to appear"
        raise UsageError(msg)


def _show(result: dict[str, Any]) -> None:
    done = "would be told" if result["dry_run"] else "told"
    typer.echo(
        f"{result['commanded']} of {result['matched']} agendas {done}: {result['action']}"
    )
    for state, number in result["passed_over"].items():
        typer.echo(f"  {number} passed over: {state}")


async def _list(chosen: _Filter, limit: int, *, as_json: bool) -> None:
    found: list[dict[str, Any]] = []
    total, cursor = 0, None
    async with _client() as client:
        while len(found) < limit:
            query = [(name, value) for name, values in chosen.items() for value in values]
            query.append(("limit", str(min(500, limit - len(found)))))
            if cursor is not None:
                query.append(("cursor", cursor))
            page = await client.get("agendas", query=query)
            found += page["agendas"]
            total, cursor = page["total"], page["next"]
            if cursor is None:
                break
    if as_json:
        emit({"total": total, "agendas": found})
    else:
        _table(found, total)


def _table(found: Sequence[dict[str, Any]], total: int) -> None:
    from rich.table import Table

    table = Table(*_COLUMNS, box=None)
    for one in found:
        table.add_row(
            *(str(one[column] if one[column] is not None else "") for column in _COLUMNS)
        )
    console().print(table)
    console().print(f"{len(found)} of {total}")


def _client() -> "ApiClient":
    from pop_stream.cli.client import ApiClient
    from pop_stream.cli.environment import load_settings

    return ApiClient.of(load_settings())
