"""`pop-stream agenda …`, `submit`, `progress` and `watch`: clients of the HTTP API."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec
import typer

from pop_stream.cli.calling import with_api
from pop_stream.cli.files import read_bytes
from pop_stream.cli.output import JsonFlag, console, emit, table
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import BaseModel

    from pop_stream.api_models.commands import (
        AgendaList,
        BulkResult,
        ListedAgenda,
        Selection,
    )
    from pop_stream.client.client import Client

app = typer.Typer(
    help="List agendas; cancel, hold, release, reprioritise, rerun and delete them.",
    no_args_is_help=True,
)

_ID_FIELDS: Final = (
    "customer", "insight", "link", "external", "correlation", "template", "puller"
)  # fmt: skip
_PLAIN_FIELDS: Final = ("title", "state", "priority", "attempt", "waiting_for", "stopping")
_INSTANT_FIELDS: Final = tuple(
    f"{step}_{side}"
    for step in ("accepted", "emitted", "started", "ended")
    for side in ("from", "before")
)
FIELDS: Final = (*_ID_FIELDS, *_PLAIN_FIELDS, *_INSTANT_FIELDS)
"""What agendas may be chosen by. Each but an instant may be given several times, and any value
fits; the last of several instants counts."""

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Agendas by id.")]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help=f"Those that fit; {', '.join(FIELDS)}."),
]
Reason = Annotated[str, typer.Option(help="Shown with the agenda and in its events.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]

_PAYLOAD: Final = "payload="
_Chosen = dict[str, list[str] | str]

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")

_MAX_OF_A_PAGE: Final = 500

_COLUMNS: Final = (
    "id", "title", "state", "percent", "customer_id", "insight_id", "attempt", "accepted_at"
)  # fmt: skip


@app.command("list")
def list_agendas(
    ids: Ids = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(min=1, help="Most to show.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """Show agendas that fit, newest first; payload=PATH=VALUE looks into their payloads."""
    from pop_stream.api_models.commands import ListSelection

    payload = [one for one in where or () if one.startswith(_PAYLOAD)]
    chosen = _chosen(ids, [one for one in where or () if one not in payload])
    if payload:
        chosen["payload"] = [one.removeprefix(_PAYLOAD) for one in payload]
    selection = valid(ListSelection, chosen)
    page, found = with_api(lambda client: _list(client, selection, limit))
    if as_json:
        listed = json.loads(msgspec.json.encode(found))
        emit({"total": page.total, "total_is_capped": page.total_is_capped, "agendas": listed})
    else:
        _table(found, page)


@app.command()
def show(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
) -> None:
    """Print all that is known of an agenda, as JSON."""
    emit(with_api(lambda client: client.agenda(agenda_id)))


@app.command()
def why(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Say why an agenda is where it is, and about how long it will wait."""
    answer = with_api(lambda client: client.why(agenda_id))
    if as_json:
        emit(answer)
    else:
        typer.echo(answer.why)


@app.command()
def callbacks(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show what became of the reports of an agenda's ends: delivered, waiting, given up."""
    found = with_api(lambda client: client.callbacks(agenda_id))
    if as_json:
        emit({"callbacks": json.loads(msgspec.json.encode(found))})
        return
    columns = ("id", "state", "#tries", "next try", "ended", "why")
    rows = [
        [
            one.id,
            one.state,
            one.tries,
            one.due_at or "",
            one.ended_at or "",
            one.reason,
            one.url,
        ]
        for one in found
    ]
    console().print(table(columns, [[str(cell) for cell in row] for row in rows]))


def _said(at: "datetime | None") -> str:
    return at.isoformat(timespec="seconds") if at else ""


def _add_plain(action: str, text: str) -> None:
    """A command that takes no more than a reason."""

    @app.command(action, help=text)
    def command(
        ids: Ids = None,
        where: Where = None,
        reason: Reason = "",
        dry_run: DryRun = False,
        as_json: JsonFlag = False,
    ) -> None:
        wish = {"action": action, "reason": reason, "dry_run": dry_run}
        _command(wish, _chosen(ids, where), as_json=as_json)


_add_plain(
    "cancel",
    "End agendas: at once while they wait; while they run, their pullers are notified.",
)
_add_plain("hold", "Let agendas that wait wait until they are released.")
_add_plain("release", "Let agendas that are held take their turn.")


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
    changes = {key: value for key, value in moves.items() if value is not None}
    wish = {"action": "reprioritise", "reason": reason, "dry_run": dry_run, **changes}
    _command(wish, _chosen(ids, where), as_json=as_json)


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
    wish = {
        "action": "rerun",
        "reason": reason,
        "operations": "all" if everything else "failed",
        "hold": held,
        "dry_run": dry_run,
    }
    _command(wish, _chosen(ids, where), as_json=as_json)


@app.command()
def delete(
    ids: Ids = None,
    where: Where = None,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove agendas that have ended, with all that is known of them."""
    _command({"action": "delete", "dry_run": dry_run}, _chosen(ids, where), as_json=as_json)


@app.command()
def resubmit(
    ids: Ids = None, where: Where = None, dry_run: DryRun = False, as_json: JsonFlag = False
) -> None:
    """Submit refused agendas again, those that pass by the definitions in force now."""
    chosen = _chosen(ids, where)
    result = with_api(lambda client: client.resubmit(_selection(chosen), dry_run=dry_run))
    if as_json:
        emit(result)
        return
    verb = "would be submitted" if dry_run else "submitted"
    typer.echo(f"{verb} {result.resubmitted}, still refused {result.still_refused}")
    for one in result.reasons:
        typer.echo(f"  {one.id}: {one.reason}")


def _chosen(ids: Sequence[str] | None, where: Sequence[str] | None) -> _Chosen:
    chosen: _Chosen = {"ids": [*ids]} if ids else {}
    for condition in where or ():
        name, has_value, value = condition.partition("=")
        if name not in FIELDS or not has_value:
            msg = f"--where {condition}: write FIELD=VALUE, with one of {', '.join(FIELDS)}"
            raise UsageError(msg)
        if name in _INSTANT_FIELDS:
            chosen[name] = value
            continue
        key = f"{name}_id" if name in _ID_FIELDS else name
        values = chosen.setdefault(key, [])
        assert isinstance(values, list)  # noqa: S101  instants alone are not
        values.append(value)
    return chosen


def _selection(chosen: _Chosen) -> "Selection":
    from pop_stream.api_models.commands import Selection

    return valid(Selection, chosen)


def valid(shape: type[M], content: Mapping[str, object]) -> M:
    """What was chosen, as the API takes it.

    Raises:
        UsageError: If it cannot be that; with every field that is wrong.
    """
    from pydantic import ValidationError

    from pop_stream.model.validation import issues_of

    try:
        return shape.model_validate(content)
    except ValidationError as error:
        issues = issues_of(error, document="command")
        raise UsageError("\n".join(map(str, issues))) from None


def _command(wish: Mapping[str, object], chosen: _Chosen, *, as_json: bool) -> None:
    from pop_stream.api_models.commands import BulkCommand

    if not chosen:
        msg = f"name the agendas to {wish['action']} by id, or choose them with --where"
        raise UsageError(msg)
    command = valid(BulkCommand, {**wish, "filter": chosen})
    result = with_api(lambda client: client.command(command))
    if as_json:
        emit(result)
    else:
        _show(result)
    if not result.matched:
        msg = "no agenda fits; what was accepted just now may take a moment to appear"
        raise UsageError(msg)


def _show(result: "BulkResult") -> None:
    done = "would be sent" if result.dry_run else "sent"
    typer.echo(f"{result.commanded} of {result.matched} agendas {done}: {result.action}")
    for state, number in result.skipped.items():
        typer.echo(f"  {number} passed over: {state.value}")
    for why, number in result.not_possible.items():
        typer.echo(f"  {number} not possible: {why}")


async def _list(
    client: "Client", selection: "Selection", limit: int
) -> "tuple[AgendaList, list[ListedAgenda]]":
    """The last page that was read, and the newest that fit."""
    page = await client.page(selection, limit=min(_MAX_OF_A_PAGE, limit))
    found = [*page.agendas]
    while page.next is not None and len(found) < limit:
        wanted = min(_MAX_OF_A_PAGE, limit - len(found))
        page = await client.page(selection, limit=wanted, cursor=page.next)
        found += page.agendas
    return page, found


def _table(found: "Sequence[ListedAgenda]", page: "AgendaList") -> None:
    rows = [[_text(getattr(one, column)) for column in _COLUMNS] for one in found]
    console().print(table(_COLUMNS, rows))
    more = " or more" if page.total_is_capped else ""
    console().print(f"{len(found)} of {page.total}{more}")


def _text(value: object) -> str:
    return "" if value is None else str(getattr(value, "value", value))


def submit(
    file: Annotated[
        Path, typer.Argument(help="JSON of one agenda or a list of them; - reads it here.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all have ended; exit 1 if any failed.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit an agenda, or a list of them, to the API at POP_API_URL."""
    from pop_stream.cli import submissions

    asyncio.run(submissions.submit(read_bytes(file), wait=wait, as_json=as_json))


def progress(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show how far an agenda is, operation by operation."""
    from pop_stream.cli import submissions

    asyncio.run(submissions.progress(agenda_id, as_json=as_json))


def watch(
    agenda_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The agenda's id.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Watch all agendas of a link id.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow an agenda, or all agendas of a link, until the end; exit 1 if it failed."""
    if (agenda_id is None) == (link is None):
        msg = "name either an agenda's id or a link with --link"
        raise UsageError(msg)
    from pop_stream.cli import submissions

    asyncio.run(submissions.watch(agenda_id, link, as_json=as_json))
