"""`pop-stream dead-letters …`: what came to nothing, over the HTTP API."""

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from pop_stream.cli.agendas import valid
from pop_stream.cli.calling import with_api
from pop_stream.cli.output import JsonFlag, console, emit, table
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.api_models.dead_letters import (
        DeadLetterView,
        LetterAction,
        LetterCommandResult,
        LetterSelection,
        ReasonList,
    )
    from pop_stream.client.client import Client

app = typer.Typer(
    name="dead-letters",
    help="Find what came to nothing: list, show, redrive and discard dead letters.",
    no_args_is_help=True,
)

_KEYS: Final = {
    "kind": "kind",
    "code": "code",
    "customer": "customer_id",
    "insight": "insight_id",
    "agenda": "agenda_id",
    "state": "state",
    "from": "from_at",
    "before": "before_at",
}
"""What letters may be chosen by, and what the API calls it."""

_SINGLE: Final = frozenset({"from_at", "before_at"})
_PAGE: Final = 500
_COLUMNS: Final = ("#id", "#at", "#kind", "#code", "customer", "insight", "reason")
_SHOWN: Final = 80

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Letters by id.")]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help=f"Those that fit; {', '.join(_KEYS)}."),
]
Reason = Annotated[str, typer.Option(help="For the audit log.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


@app.command("list")
def list_letters(
    where: Where = None,
    reasons: Annotated[
        bool, typer.Option("--reasons", help="Count them by reason instead.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most to show.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """Show dead letters that fit, newest first; those that are open, if no state is named."""
    selection = _selection((), where)
    if reasons:
        counts = with_api(lambda client: client.dead_letters.reasons(selection))
        if as_json:
            emit(counts)
        else:
            _show_reasons(counts)
        return
    found = with_api(lambda client: _list(client, selection, limit))
    if as_json:
        emit({"letters": json.loads(msgspec.json.encode(found))})
        return
    rows = [
        [
            one.id, f"{one.at:%Y-%m-%d %H:%M:%S}", one.kind, one.code, one.customer_id or "",
            one.insight_id or "", one.reason[:_SHOWN],
        ]
        for one in found
    ]  # fmt: skip
    console().print(table(_COLUMNS, rows))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The letter's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show a dead letter, with the value that it is about."""
    letter = with_api(lambda client: client.dead_letters.get(letter_id))
    if as_json:
        emit(letter)
        return
    for name in letter.__struct_fields__:
        value = getattr(letter, name)
        if name not in {"value_base64", "issues"} and value not in {None, "", -1}:
            typer.echo(f"{name}: {value}")
    for issue in letter.issues:
        typer.echo(f"  {issue}")
    typer.echo(base64.b64decode(letter.value_base64).decode(errors="replace"))


@app.command()
def redrive(
    ids: Ids = None,
    where: Where = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Try again what dead letters are about; exit 1 if some could not be."""
    _command("redrive", _selection(ids or (), where), reason, dry_run=dry_run, as_json=as_json)


@app.command()
def discard(
    ids: Ids = None,
    where: Where = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Dismiss dead letters: nothing is done about them any more."""
    _command("discard", _selection(ids or (), where), reason, dry_run=dry_run, as_json=as_json)


def _selection(ids: Sequence[str], where: Sequence[str] | None) -> "LetterSelection":
    from pop_stream.api_models.dead_letters import LetterSelection

    chosen: dict[str, list[str] | str] = {"ids": [*ids]} if ids else {}
    for condition in where or ():
        name, has_value, value = condition.partition("=")
        if name not in _KEYS or not has_value:
            msg = f"--where {condition}: write FIELD=VALUE, with one of {', '.join(_KEYS)}"
            raise UsageError(msg)
        key = _KEYS[name]
        if key in _SINGLE:
            chosen[key] = value
            continue
        values = chosen.setdefault(key, [])
        assert isinstance(values, list)  # noqa: S101  instants alone are not
        values.append(value)
    return valid(LetterSelection, chosen)


def _command(
    action: "LetterAction",
    selection: "LetterSelection",
    reason: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from pop_stream.api_models.dead_letters import LetterCommand, is_letter_set

    if not is_letter_set(selection):
        msg = f"name the letters to {action} by id, or choose them with --where"
        raise UsageError(msg)
    command = LetterCommand(action=action, filter=selection, reason=reason, dry_run=dry_run)
    result = with_api(lambda client: client.dead_letters.command(command))
    if as_json:
        emit(result)
    else:
        _show_result(result)
    if not result.matched:
        msg = "no open letter fits; `dead-letters list --where state=redriven` has others"
        raise UsageError(msg)
    if not dry_run and result.outcomes.get("done", 0) < result.matched:
        raise typer.Exit(1)


def _show_result(result: "LetterCommandResult") -> None:
    would = "would be " if result.dry_run else ""
    done = result.outcomes.get("done", 0)
    past = {"redrive": "redriven", "discard": "discarded"}[result.action]
    typer.echo(f"{would}{past}: {done} of {result.matched}")
    for one in result.failures:
        typer.echo(f"  {one.id} {one.outcome}: {one.detail}")
    if result.has_more:
        typer.echo("more letters fit: send the same command again")


def _show_reasons(counts: "ReasonList") -> None:
    rows = [
        [str(one.letters), one.kind, one.code, f"{one.newest_at:%Y-%m-%d %H:%M:%S}",
         one.example[:_SHOWN]]
        for one in counts.reasons
    ]  # fmt: skip
    console().print(table(("#letters", "#kind", "#code", "#newest", "for example"), rows))


async def _list(
    client: "Client", selection: "LetterSelection", limit: int
) -> "list[DeadLetterView]":
    found: list[DeadLetterView] = []
    before: int | None = None
    while True:
        wanted = min(_PAGE, limit - len(found))
        page = await client.dead_letters.page(selection, limit=wanted, before=before)
        found += page.letters
        before = page.next
        if before is None or len(found) >= limit:
            return found
