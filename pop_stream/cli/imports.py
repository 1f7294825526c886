"""`pop-stream import pop …`: takes over what another system had."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pop_stream.cli.calling import with_api
from pop_stream.cli.files import read_bytes
from pop_stream.cli.output import JsonFlag, emit
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.model.errors import Issue
    from pop_stream.pop_import.applying import Applied
    from pop_stream.pop_import.fields import ImportedObject
    from pop_stream.pop_import.objects import PopKind

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="JSON: an object, a list, an answer of POP's API, or one on each line; "
        "- reads it here.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be sent; needs no server.")
]
Kind = Annotated[
    str | None,
    typer.Option("--as", metavar="KIND", help="Of objects whose fields do not show it."),
]
Customer = Annotated[
    str | None, typer.Option(metavar="ID", help="Of agendas that name no customer.")
]
Capacity = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**9, help="max_in_flight of resource pools; unset, they limit nothing."
    ),
]
Renamed = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OLD=NEW", help="Another id here for one of POP's; may be given again."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse fields that POP did not have.")]

app = typer.Typer(
    name="import", help="Take over what another system had.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Take over what another system had."""


@app.command()
def pop(  # noqa: PLR0913, PLR0917  # one for each option
    files: Files,
    dry_run: DryRun = False,
    kind: Kind = None,
    customer: Customer = None,
    pool_capacity: Capacity = None,
    rename: Renamed = None,
    strict: Strict = False,
    as_json: JsonFlag = False,
) -> None:
    """Define and submit what objects of Comcast's POP become; a second run changes nothing."""
    from pop_stream.pop_import.conversion import convert
    from pop_stream.pop_import.fields import ImportOptions
    from pop_stream.pop_import.objects import read_objects

    renamed = _renamed(rename or ())
    options = ImportOptions(customer, pool_capacity, renamed, strict)
    documents = [(str(file), read_bytes(file)) for file in files]
    objects, unreadable = read_objects(documents, _kind(kind))
    found = convert(objects, options)
    is_sound = not unreadable and not any(one.is_refused for one in found)
    applied: list[Applied] = []
    if is_sound and not dry_run:
        from pop_stream.pop_import.applying import apply

        applied = with_api(lambda client: apply(client, found))
    report = _Report(found, unreadable, applied, is_trial=dry_run)
    report.show(as_json=as_json)
    if not is_sound or any(one.outcome == "failed" for one in applied):
        raise typer.Exit(1)


def _kind(text: str | None) -> "PopKind | None":
    from pop_stream.pop_import.objects import NAMED_KINDS

    if text is None:
        return None
    if (found := NAMED_KINDS.get(text.casefold())) is None:
        msg = f"--as {text}: give one of {', '.join(NAMED_KINDS)}"
        raise UsageError(msg)
    return found


def _renamed(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in texts:
        old, equals, new = one.rpartition("=")
        if not equals or not old or not new:
            msg = f"--rename {one}: write OLD=NEW, with POP's id and the one here"
            raise UsageError(msg)
        found[old] = new
    return found


class _Report:
    """What is shown of an import, to a person or as JSON."""

    def __init__(
        self,
        found: "Sequence[ImportedObject]",
        unreadable: "Sequence[tuple[str, Issue]]",
        applied: "Sequence[Applied]",
        *,
        is_trial: bool,
    ) -> None:
        self._found = found
        self._unreadable = unreadable
        self._applied = {id(one.one): one for one in applied}
        self._is_trial = is_trial
        self._is_sound = not unreadable and not any(one.is_refused for one in found)

    def show(self, *, as_json: bool) -> None:
        """Print all of it."""
        counts = Counter(self._outcome(one) for one in self._found)
        counts["unreadable"] = len(self._unreadable)
        shown = {name: number for name, number in counts.items() if number}
        if as_json:
            emit({**shown, "objects": self._objects(), "errors": self._errors()})
            return
        for source, issue in self._unreadable:
            typer.echo(f"{source}: {issue}")
        for one in self._found:
            self._echo(one)
        typer.echo(", ".join(f"{number} {name}" for name, number in shown.items()))
        if not self._is_sound and not self._is_trial:
            typer.echo("Nothing was sent; mend what is refused and import again.", err=True)

    def _outcome(self, one: "ImportedObject") -> str:
        if one.is_refused:
            return "refused"
        if not one.content:
            return "dropped"
        if done := self._applied.get(id(one)):
            return done.outcome
        return "convertible" if self._is_trial else "not_sent"

    def _why(self, one: "ImportedObject") -> str:
        done = self._applied.get(id(one))
        return done.why if done else ""

    def _echo(self, one: "ImportedObject") -> None:
        target = f" -> {one.kind} {one.id}" if one.content else ""
        why = self._why(one)
        reason = f": {why}" if why else ""
        outcome = self._outcome(one).replace("_", " ")
        typer.echo(f"{one.origin}{target}: {outcome}{reason}")
        for fate in one.fates:
            typer.echo(f"    {fate}")

    def _objects(self) -> list[dict[str, Any]]:
        return [
            {
                "file": one.origin.source,
                "object": one.origin.number,
                "pop_kind": one.origin.kind,
                "kind": one.kind,
                "id": one.id,
                "outcome": self._outcome(one),
                "why": self._why(one),
                "fields": [
                    {
                        "field": fate.field,
                        "value": fate.value,
                        "became": fate.became,
                        "to": fate.to,
                        "why": fate.why,
                    }
                    for fate in one.fates
                ],
                "content": one.content,
            }
            for one in self._found
        ]

    def _errors(self) -> list[dict[str, str]]:
        return [
            {
                "file": source,
                "field": issue.field,
                "value": issue.value,
                "message": issue.message,
            }
            for source, issue in self._unreadable
        ]
