"""`pop-stream customer|pool|insight|template …`: what is defined, through the HTTP API."""

import asyncio
import json
import sys
import tomllib
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from pop_stream.cli.errors import UsageError
from pop_stream.cli.output import JsonFlag, console, emit, table

if TYPE_CHECKING:
    from pop_stream.cli.client import ApiClient

_PAGE: Final = 500

_PATHS: Final[Mapping[str, str]] = {
    "customer": "customers",
    "pool": "pools",
    "insight": "insights",
    "template": "agenda-templates",
}
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "customer": ("id", "title", "weight", "max_in_flight", "rate_per_s", "paused"),
    "pool": ("id", "title", "max_in_flight", "insight_ids"),
    "insight": ("id", "title", "algorithm", "precedence", "target", "pool"),
    "template": ("id", "title", "owner", "visibility", "version"),
}

Id = Annotated[str, typer.Argument(metavar="ID")]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="JSON, or TOML if it ends so; - reads JSON here.")
]
IfVersion = Annotated[
    int | None, typer.Option(min=1, help="Refuse if it is in another version by now.")
]
Assignments = Annotated[
    list[str],
    typer.Argument(metavar="FIELD=VALUE...", help="JSON, else text; null takes it back."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Only those; a field told twice fits either."),
]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="JSON, else text.")
]
Payload = Annotated[
    Path | None, typer.Option(help="File with the payload as JSON; - reads it.")
]

T = TypeVar("T")


def _group(kind: str) -> typer.Typer:
    """The commands of one kind of definition."""
    app = typer.Typer(name=kind, help=f"List, show and change {kind}s.", no_args_is_help=True)
    _add_reads(app, kind, _PATHS[kind])
    _add_writes(app, kind, _PATHS[kind])
    return app


def _add_reads(app: typer.Typer, kind: str, path: str) -> None:
    @app.command("list", help=f"Show all {kind}s that fit.")
    def list_all(
        where: Where = None,
        sort: Annotated[str, typer.Option(help="As in -weight,id.")] = "id",
        as_json: JsonFlag = False,
    ) -> None:
        query = [*_pairs(where or ()), ("sort", sort), ("limit", str(_PAGE))]
        found = _run(_all(path, query))
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
        parts = () if version is None else ("versions", str(version))
        emit(_run(_get(path, object_id, *parts)))


def _add_writes(app: typer.Typer, kind: str, path: str) -> None:
    @app.command(help=f"Define a {kind} that is not there yet.")
    def create(file: File) -> None:
        emit(_run(_write("POST", path, body=_content(file))))

    @app.command(help=f"Define a {kind}, in the place of what there may be.")
    def replace(object_id: Id, file: File, if_version: IfVersion = None) -> None:
        emit(_run(_write("PUT", path, object_id, body=_content(file), if_match=if_version)))

    @app.command(help=f"Change fields of a {kind}; a.b=… for one inside another.")
    def patch(object_id: Id, fields: Assignments, if_version: IfVersion = None) -> None:
        emit(_run(_write("PATCH", path, object_id, body=_nested(fields), if_match=if_version)))

    @app.command(help=f"Delete a {kind} that nothing needs.")
    def delete(object_id: Id, if_version: IfVersion = None) -> None:
        _run(_write("DELETE", path, object_id, if_match=if_version))


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
        emit(_run(_write("POST", *_to("run", template_id), body=_call(payload, param, field))))

    @app.command()
    def preview(template_id: Id, payload: Payload = None, param: Params = None) -> None:
        """Print that agenda and where it would go; nothing is submitted."""
        body = _call(payload, param, None)
        emit(_run(_write("POST", *_to("preview", template_id), body=body)))

    return app


def _to(service: str, template_id: str) -> tuple[str, str, str]:
    return _PATHS["template"], template_id, service


def _call(
    payload: Path | None, params: Sequence[str] | None, fields: Sequence[str] | None
) -> Mapping[str, Any]:
    body: dict[str, Any] = {**_nested(fields or ())}
    if params:
        body["params"] = {name: _value(text) for name, text in _pairs(params)}
    if payload is not None:
        body["payload"] = _content(payload)
    return body


async def _all(path: str, query: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    async with _client() as client:
        while True:
            more = [("cursor", cursor)] if cursor else []
            page = await client.get(path, query=[*query, *more])
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                return found


async def _get(*path: str) -> dict[str, Any]:
    async with _client() as client:
        return await client.get(*path)


async def _write(
    method: str, *path: str, body: object = None, if_match: int | None = None
) -> dict[str, Any]:
    sent = None if method == "DELETE" else json.dumps(body).encode()
    async with _client() as client:
        return await client.write(method, *path, body=sent, if_match=if_match)


def _content(file: Path) -> Any:  # noqa: ANN401  # any JSON
    try:
        if str(file) == "-":
            return json.loads(sys.stdin.buffer.read())
        if file.suffix == ".toml":
            return tomllib.loads(file.read_text())
        return json.loads(file.read_bytes())
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise UsageError(msg) from None
    except ValueError as error:
        msg = f"{file} is no JSON or TOML: {error}"
        raise UsageError(msg) from None


def _nested(assignments: Sequence[str]) -> dict[str, Any]:
    """`a.b=1` as an object in an object."""
    found: dict[str, Any] = {}
    for dotted, text in _pairs(assignments):
        *outer, last = dotted.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = _value(text)
    return found


def _pairs(assignments: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for one in assignments:
        name, equals, text = one.partition("=")
        if not equals or not name:
            msg = f"{one!r} must be of the form NAME=VALUE"
            raise UsageError(msg)
        found.append((name, text))
    return found


def _value(text: str) -> Any:  # noqa: ANN401  # any JSON
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _client() -> "ApiClient":
    from pop_stream.cli.client import ApiClient
    from pop_stream.cli.environment import load_settings

    return ApiClient.of(load_settings())


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


GROUPS: Final = (
    _group("customer"),
    _group("pool"),
    _group("insight"),
    _runs(_group("template")),
)
"""One group of commands per kind."""
