"""`pop-stream customer|pool|insight|template|schedules|rules …`: what is defined."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from pop_stream.cli.agendas import valid
from pop_stream.cli.calling import with_api
from pop_stream.cli.files import instant, nested, pairs, read_content, value
from pop_stream.cli.output import JsonFlag, console, emit, table

if TYPE_CHECKING:
    from pop_stream.api_models.schedules import CommandedSchedule, OccurrenceView
    from pop_stream.client.client import Client
    from pop_stream.client.definitions import DefinitionCalls, StoredDefinition

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "customer": ("id", "title", "weight", "max_in_flight", "rate_per_s", "paused"),
    "pool": ("id", "title", "max_in_flight", "insight_ids"),
    "insight": ("id", "title", "algorithm", "precedence", "target", "pool", "paused"),
    "template": ("id", "title", "owner", "visibility", "version"),
    "schedule": ("id", "title", "trigger", "timezone", "owner", "paused"),
    "rule": ("id", "title", "topic", "on", "max_per_s", "owner", "paused"),
}

Id = Annotated[str, typer.Argument(metavar="ID")]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="JSON, or TOML if it ends so; - reads JSON here.")
]
IfVersion = Annotated[
    int | None, typer.Option(min=1, help="Refuse if it is in another version by now.")
]
Reason = Annotated[str, typer.Option(help="For the audit log.")]
Assignments = Annotated[
    list[str],
    typer.Argument(metavar="FIELD=VALUE...", help="JSON, else text; null takes it back."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Only those; a field given twice fits either."),
]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="JSON, else text.")
]
Instant = Annotated[
    str, typer.Argument(metavar="INSTANT", help="As in 2026-01-31T08:00:00Z, with a zone.")
]
Payload = Annotated[
    Path | None, typer.Option(help="File with the payload as JSON; - reads it.")
]

T = TypeVar("T")


def _group(kind: str, name: str | None = None) -> typer.Typer:
    """The commands of one kind of definition."""
    app = typer.Typer(
        name=name or kind, help=f"List, show and change {kind}s.", no_args_is_help=True
    )
    _add_reads(app, kind, f"{kind}s")
    _add_writes(app, kind, f"{kind}s")
    return app


def _add_reads(app: typer.Typer, kind: str, plural: str) -> None:
    @app.command("list", help=f"Show all {kind}s that fit.")
    def list_all(
        where: Where = None,
        sort: Annotated[str, typer.Option(help="As in -weight,id.")] = "id",
        as_json: JsonFlag = False,
    ) -> None:
        wanted = _filters(where or ())

        async def read(known: "DefinitionCalls[Any]") -> list[Mapping[str, Any]]:
            return [one.content async for one in known.all(wanted, sort=sort)]

        found = _with_all(plural, read)
        if as_json:
            emit({"items": found, "total": len(found)})
        else:
            rows = [[_text(one.get(name)) for name in _COLUMNS[kind]] for one in found]
            console().print(table(_COLUMNS[kind], rows))

    @app.command(help=f"Print a {kind}, as JSON.")
    def show(
        object_id: Id,
        version: Annotated[int | None, typer.Option(min=1, help="As it was then.")] = None,
    ) -> None:
        async def read(known: "DefinitionCalls[Any]") -> "StoredDefinition[Any]":
            if version is None:
                return await known.get(object_id)
            return await known.version(object_id, version)

        emit(_with_all(plural, read).content)


def _add_writes(app: typer.Typer, kind: str, plural: str) -> None:
    @app.command(help=f"Define a {kind} that is not there yet.")
    def create(file: File, reason: Reason = "") -> None:
        content = read_content(file)
        emit(_with_all(plural, lambda known: known.create(content, reason=reason)).content)

    @app.command(help=f"Define a {kind}, in the place of what there may be.")
    def replace(
        object_id: Id, file: File, if_version: IfVersion = None, reason: Reason = ""
    ) -> None:
        content = read_content(file)
        made = _with_all(
            plural,
            lambda known: known.put(object_id, content, if_match=if_version, reason=reason),
        )
        emit(made.content)

    @app.command(help=f"Change fields of a {kind}; a.b=… for one inside another.")
    def patch(
        object_id: Id, fields: Assignments, if_version: IfVersion = None, reason: Reason = ""
    ) -> None:
        changes = nested(fields)
        made = _with_all(
            plural,
            lambda known: known.patch(object_id, changes, if_match=if_version, reason=reason),
        )
        emit(made.content)

    @app.command(help=f"Delete a {kind} that nothing needs.")
    def delete(object_id: Id, if_version: IfVersion = None, reason: Reason = "") -> None:
        _with_all(
            plural, lambda known: known.delete(object_id, if_match=if_version, reason=reason)
        )


def _runs(app: typer.Typer) -> typer.Typer:
    """The commands that templates have besides."""

    @app.command()
    def run(
        template_id: Id,
        payload: Payload = None,
        param: Params = None,
        field: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="FIELD=VALUE", help="Of the agenda, as in id=a1."),
        ] = None,
    ) -> None:
        """Submit the agenda that a template makes of a payload and parameters."""
        call = _call(payload, param, field)
        emit(with_api(lambda client: client.templates.run(template_id, call)))

    @app.command()
    def preview(template_id: Id, payload: Payload = None, param: Params = None) -> None:
        """Print that agenda and where it would go; nothing is submitted."""
        call = _call(payload, param, None)
        emit(with_api(lambda client: client.templates.preview(template_id, call)))

    @app.command("split-preview")
    def split_preview(template_id: Id, payload: Payload = None, param: Params = None) -> None:
        """Count the agendas that a run would be divided among; nothing is submitted."""
        call = _call(payload, param, None)
        emit(with_api(lambda client: client.templates.preview_split(template_id, call)))

    return app


def _health(app: typer.Typer) -> typer.Typer:
    """The command that insights have besides."""

    @app.command()
    def health(
        insight_id: Id,
        coefficient: Annotated[float, typer.Argument(min=0, max=1, help="0 emits nothing.")],
        ttl_s: Annotated[float, typer.Option(min=1, help="After so long it is void.")] = 300,
        source: Annotated[str, typer.Option(help="Of several, the worst counts.")] = "manual",
        reason: Annotated[str, typer.Option(help="Shown to whoever asks why.")] = "",
    ) -> None:
        """Report a value by which an insight's cap on agendas in flight is multiplied."""
        ttl = timedelta(seconds=ttl_s)
        emit(
            with_api(
                lambda client: client.insights.report_health(
                    insight_id, coefficient, ttl=ttl, source=source, reason=reason
                )
            )
        )

    return app


def _timing(app: typer.Typer) -> typer.Typer:
    """The commands that schedules have besides."""

    @app.command("next")
    def show_next(
        schedule_id: Id,
        n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many.")] = 5,
        as_json: JsonFlag = False,
    ) -> None:
        """Show when a schedule fires next."""
        found = with_api(lambda client: client.schedules.next(schedule_id, n=n))
        if as_json:
            emit(found)
        else:
            columns = ("local", "nominal", "due_at")
            rows = [[one.local, one.nominal, one.due_at] for one in found.items]
            shown = [[str(one) for one in row] for row in rows]
            console().print(table(columns, shown))

    @app.command()
    def progress(schedule_id: Id) -> None:
        """Show how far a schedule has come, and what of it runs or waits."""
        emit(with_api(lambda client: client.schedules.progress(schedule_id)))

    _lists_occurrences(app)

    @app.command()
    def trigger(schedule_id: Id) -> None:
        """Submit an occurrence for now, whatever runs."""
        emit(with_api(lambda client: client.schedules.trigger(schedule_id)))

    _pauses(app)
    return app


def _lists_occurrences(app: typer.Typer) -> None:
    @app.command()
    def occurrences(
        schedule_id: Id,
        state: Annotated[
            list[str] | None,
            typer.Option(help="Only these: failed, skipped, buffered …; may be given again."),
        ] = None,
        first: Annotated[
            str | None, typer.Option("--from", metavar="INSTANT", help="Nothing before it.")
        ] = None,
        before: Annotated[
            str | None, typer.Option(metavar="INSTANT", help="`next` of the page before.")
        ] = None,
        limit: Annotated[int, typer.Option(min=1, max=500, help="Most to show.")] = 50,
        as_json: JsonFlag = False,
    ) -> None:
        """Show what was due, latest first: with its runs, or why it was skipped."""
        from pop_stream.api_models.schedules import OccurrenceSelection

        chosen = valid(
            OccurrenceSelection,
            {
                "state": state or [],
                "nominal_from": instant(first) if first else None,
                "nominal_before": instant(before) if before else None,
                "limit": limit,
            },
        )
        found = with_api(lambda client: client.schedules.occurrences(schedule_id, chosen))
        if as_json:
            emit(found)
            return
        rows = [
            [one.local, one.state, one.reason or "", *_run_cells(one)] for one in found.items
        ]
        columns = ("local", "state", "skipped for", "agenda", "#attempt", "runs")
        console().print(table(columns, rows))
        if found.next:
            typer.echo(f"more: --before {found.next.isoformat()}")


def _run_cells(one: "OccurrenceView") -> list[str]:
    """The latest run, and how many there are."""
    if not one.runs:
        return ["", "", "0"]
    last = one.runs[0]
    return [last.agenda_id, str(last.attempt), str(len(one.runs))]


def _pauses(app: typer.Typer) -> None:
    @app.command()
    def pause(schedule_id: Id) -> None:
        """Skip what is due until the schedule is resumed."""
        paused = {"paused": True}
        emit(with_api(lambda client: client.schedules.patch(schedule_id, paused)).content)

    @app.command()
    def resume(schedule_id: Id) -> None:
        """Go on, also after a pause that failures have led to."""

        async def go_on(client: "Client") -> "CommandedSchedule":
            await client.schedules.patch(schedule_id, {"paused": False})
            return await client.schedules.resume(schedule_id)

        emit(with_api(go_on))

    @app.command()
    def expire(schedule_id: Id) -> None:
        """End a schedule for good: nothing is due from now on, its definition stays."""
        from pop_stream.clock import WallClock

        end = {"end": WallClock().now().isoformat()}
        emit(with_api(lambda client: client.schedules.patch(schedule_id, end)).content)

    @app.command()
    def backfill(schedule_id: Id, first: Instant, last: Instant) -> None:
        """Submit the occurrences of a range, both ends included, 1,000 at most."""
        span = (instant(first), instant(last))
        emit(with_api(lambda client: client.schedules.backfill(schedule_id, *span)))


def _testing(app: typer.Typer) -> typer.Typer:
    """The commands that rules have besides."""

    @app.command()
    def progress(rule_id: Id) -> None:
        """Show what became of a rule's records, and why nothing is read, if so."""
        emit(with_api(lambda client: client.rules.progress(rule_id)))

    @app.command()
    def test(
        rule_id: Id,
        value: Annotated[Path, typer.Argument(metavar="FILE", help="JSON; - reads stdin.")],
        key: Annotated[str | None, typer.Option(help="Of the record.")] = None,
        header: Annotated[
            list[str] | None,
            typer.Option("--header", metavar="NAME=VALUE", help="Of the record."),
        ] = None,
    ) -> None:
        """Show whether a record fits, and exactly what it would lead to; nothing is done."""
        sample = {"value": read_content(value), "headers": dict(pairs(header or ()))}
        if key is not None:
            sample["key"] = key
        emit(with_api(lambda client: client.rules.test(rule_id, sample)))

    return app


def _call(
    payload: Path | None, params: Sequence[str] | None, fields: Sequence[str] | None
) -> Mapping[str, Any]:
    body: dict[str, Any] = {**nested(fields or ())}
    if params:
        body["params"] = {name: value(text) for name, text in pairs(params)}
    if payload is not None:
        body["payload"] = read_content(payload)
    return body


def _with_all(plural: str, work: Callable[["DefinitionCalls[Any]"], Awaitable[T]]) -> T:
    """What some work with the definitions of one kind comes to."""
    return with_api(lambda client: work(getattr(client, plural)))


def _filters(where: Sequence[str]) -> Mapping[str, Sequence[str]]:
    wanted: dict[str, list[str]] = {}
    for name, text in pairs(where):
        wanted.setdefault(name, []).append(text)
    return wanted


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


GROUPS: Final = (
    _group("customer"),
    _group("pool"),
    _health(_group("insight")),
    _runs(_group("template")),
    _timing(_group("schedule", "schedules")),
    _testing(_group("rule", "rules")),
)
"""One group of commands per kind."""
